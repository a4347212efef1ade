import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Traffic under credentials that change: SERVICE-URL SECONDS token TOKEN-FILE | certificate CERT KEY CA */
public class Traffic {
    static final int TIMEOUT_S = 30;

    static String read(String file) {
        try {
            return Files.readString(Path.of(file));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(arguments[0]);
        if (arguments[2].equals("token")) {
            builder.authentication(AuthenticationFactory.token(() -> read(arguments[3])));
        } else {
            builder.authentication("org.apache.pulsar.client.impl.auth.AuthenticationTls",
                Map.of("tlsCertFile", arguments[3], "tlsKeyFile", arguments[4])).tlsTrustCertsFilePath(arguments[5]);
        }
        try (PulsarClient client = builder.build();
            Consumer<String> consumer = client.newConsumer(Schema.STRING).topic("java-traffic").subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared).subscribe();
            Producer<String> producer = client.newProducer(Schema.STRING).topic("java-traffic").create()) {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[1]));
            CompletableFuture<Integer> sent = CompletableFuture.supplyAsync(() -> {
                int count = 0;
                try {
                    for (; System.nanoTime() < end; count++) {
                        producer.send(String.valueOf(count));
                        Thread.sleep(5);
                    }
                } catch (PulsarClientException | InterruptedException error) {
                    throw new IllegalStateException(error);
                }
                return count;
            });
            Set<String> found = new HashSet<>();
            while (!sent.isDone() || found.size() < sent.get()) {
                Message<String> message = consumer.receive(100, TimeUnit.MILLISECONDS);
                if (message != null) {
                    found.add(message.getValue());
                    consumer.acknowledge(message);
                }
                if (System.nanoTime() - end > TimeUnit.SECONDS.toNanos(TIMEOUT_S)) {
                    System.out.println("failed traffic: " + found.size() + " came");
                    System.exit(1);
                }
            }
            System.out.println("ok traffic: " + sent.get());
        }
        System.exit(0);
    }
}
