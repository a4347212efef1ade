import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;

/**
 * Scenarios with Pulsar's official Java client: `java Scenarios.java SERVICE-URL`, with the client in the class path.
 *
 * Each says "ok NAME" or "failed NAME: why"; the status is 1 if one failed.
 */
public class Scenarios {
    interface Scenario {
        void run(String topic) throws Exception;
    }

    static final int TIMEOUT_S = 20;
    static PulsarClient client;

    static void expect(boolean is, String why) {
        if (!is) throw new AssertionError(why);
    }

    static ConsumerBuilder<String> consumer(String topic) {
        return client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s");
    }

    static Message<String> receive(Consumer<String> consumer) throws PulsarClientException {
        Message<String> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
        expect(message != null, "nothing came");
        return message;
    }

    static List<String> take(Consumer<String> consumer, int count) throws PulsarClientException {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<String> message = receive(consumer);
            found.add(message.getValue());
            consumer.acknowledge(message);
        }
        return found;
    }

    static List<String> numbers(int from, int to) {
        List<String> found = new ArrayList<>();
        for (int i = from; i < to; i++) found.add(String.valueOf(i));
        return found;
    }

    static void same(Object found, Object expected) {
        expect(expected.equals(found), found + " and not " + expected);
    }

    static void sendMany(Producer<String> producer, int count, int keys) throws PulsarClientException {
        for (int i = 0; i < count; i++) {
            TypedMessageBuilder<String> message = producer.newMessage().value(String.valueOf(i));
            if (keys > 0) message.key("k" + i % keys);
            message.sendAsync();
        }
        producer.flush();
    }

    static void compressions(String topic) throws Exception {
        for (CompressionType type : CompressionType.values()) {
            Consumer<String> consumer = consumer(topic + type).subscribe();
            sendMany(client.newProducer(Schema.STRING).topic(topic + type).compressionType(type).create(), 300, 0);
            same(take(consumer, 300), numbers(0, 300));
        }
    }

    static void chunks(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        String large = "0123456789".repeat(700_000);
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(false)
            .enableChunking(true).create();
        producer.send(large);
        producer.send("small");
        same(take(consumer, 2), List.of(large, "small"));
    }

    static void properties(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).producerName("named").create();
        MessageId id = producer.newMessage().key("k").orderingKey("o".getBytes()).property("a", "\u00e4")
            .eventTime(1700000000123L).value("v").send();
        Message<String> m = receive(consumer);
        expect(m.getKey().equals("k") && m.getProperty("a").equals("\u00e4") && m.getEventTime() == 1700000000123L
            && m.getProducerName().equals("named") && m.getOrderingKey()[0] == 'o', "another message: " + m);
        same(m.getMessageId(), id);
        same(consumer.getLastMessageIds().size(), 1);
    }

    static void shared(String topic) throws Exception {
        ConsumerBuilder<String> builder = consumer(topic).subscriptionType(SubscriptionType.Shared)
            .enableBatchIndexAcknowledgment(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS).negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS);
        Consumer<String> one = builder.clone().subscribe(), two = builder.clone().subscribe();
        sendMany(client.newProducer(Schema.STRING).topic(topic).create(), 200, 0);
        Set<String> found = new HashSet<>();
        for (int turn = 0; found.size() < 200 && turn < 2000; turn++) {
            Consumer<String> from = turn % 2 == 0 ? one : two;
            Message<String> m = from.receive(100, TimeUnit.MILLISECONDS);
            if (m == null) continue;
            if (m.getRedeliveryCount() == 0 && Integer.parseInt(m.getValue()) % 7 == 0) {
                from.negativeAcknowledge(m);
            } else {
                expect(found.add(m.getValue()), m.getValue() + " came twice");
                from.acknowledge(m);
            }
        }
        same(found.size(), 200);
    }

    static void deadLetters(String topic) throws Exception {
        Consumer<String> dead = consumer(topic + "-dead").subscribe();
        Consumer<String> consumer = consumer(topic).subscriptionType(SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS).deadLetterPolicy(
                DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(topic + "-dead").build()).subscribe();
        client.newProducer(Schema.STRING).topic(topic).create().send("bad");
        for (int i = 0; i < 3; i++) consumer.negativeAcknowledge(receive(consumer));
        consumer.receive(1, TimeUnit.SECONDS);
        same(take(dead, 1), List.of("bad"));
    }

    static void keyShared(String topic) throws Exception {
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++)
            consumers.add(consumer(topic).subscriptionType(SubscriptionType.Key_Shared).subscribe());
        sendMany(client.newProducer(Schema.STRING).topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create(), 300, 30);
        Map<String, Integer> owner = new LinkedHashMap<>(), last = new LinkedHashMap<>();
        for (int count = 0, idle = 0; count < 300; ) {
            for (int i = 0; i < 3; i++) {
                Message<String> m = consumers.get(i).receive(50, TimeUnit.MILLISECONDS);
                expect(m != null || idle++ < 1000, count + " came");
                if (m == null) continue;
                expect(owner.computeIfAbsent(m.getKey(), key -> -1) < 0 || owner.get(m.getKey()) == i, "two have a key");
                owner.put(m.getKey(), i);
                int value = Integer.parseInt(m.getValue());
                expect(last.getOrDefault(m.getKey(), -1) < value, m.getKey() + " is out of order");
                last.put(m.getKey(), value);
                consumers.get(i).acknowledge(m);
                count++;
            }
        }
        expect(new HashSet<>(owner.values()).size() == 3, "consumers have " + owner);
    }

    static void failover(String topic) throws Exception {
        List<String> said = new CopyOnWriteArrayList<>();
        ConsumerEventListener listener = new ConsumerEventListener() {
            public void becameActive(Consumer<?> c, int partition) {
                said.add(c.getConsumerName() + " active");
            }

            public void becameInactive(Consumer<?> c, int partition) {
                said.add(c.getConsumerName() + " inactive");
            }
        };
        Map<String, Consumer<String>> both = new LinkedHashMap<>();
        for (String name : List.of("a", "b"))
            both.put(name, consumer(topic).subscriptionType(SubscriptionType.Failover).consumerName(name)
                .consumerEventListener(listener).subscribe());
        sendMany(client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create(), 20, 0);
        Thread.sleep(1500);
        String active = said.lastIndexOf("a active") > said.lastIndexOf("a inactive") ? "a" : "b";
        expect(said.contains(active + " active"), "said: " + said);
        Message<String> m = null;
        for (int i = 0; i < 10; i++) m = receive(both.get(active));
        both.get(active).acknowledgeCumulative(m);
        both.get(active).close();
        same(take(both.get(active.equals("a") ? "b" : "a"), 10), numbers(10, 20));
    }

    static void readers(String topic) throws Exception {
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create();
        sendMany(producer, 10, 0);
        Reader<String> reader = client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create();
        List<String> found = new ArrayList<>();
        while (reader.hasMessageAvailable()) found.add(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS).getValue());
        same(found, numbers(0, 10));
        reader.seek(MessageId.earliest);
        expect(reader.hasMessageAvailable(), "nothing after a seek");
        same(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS).getValue(), "0");
        reader.seek(System.currentTimeMillis() + 100_000);
        expect(!reader.hasMessageAvailable(), "something behind the end");
        Consumer<String> consumer = consumer(topic).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        same(take(consumer, 10), numbers(0, 10));
        consumer.seek(MessageId.earliest);
        same(take(consumer, 10), numbers(0, 10));
        consumer.unsubscribe();
    }

    static void patterns(String topic) throws Exception {
        Consumer<String> consumer = client.newConsumer(Schema.STRING).subscriptionName("s")
            .topicsPattern(Pattern.compile("persistent://public/default/" + topic + "-p.*"))
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS).subscribe();
        for (String name : List.of("-p1", "-p2", "-other"))
            client.newProducer(Schema.STRING).topic(topic + name).create().send(name);
        List<String> found = take(consumer, 2);
        Collections.sort(found);
        same(found, List.of("-p1", "-p2"));
    }

    static void partitions(String topic) throws Exception {
        same(client.getPartitionsForTopic("java-partitioned").get().size(), 4);
        Consumer<String> consumer = consumer("java-partitioned").subscribe();
        sendMany(client.newProducer(Schema.STRING).topic("java-partitioned").create(), 200, 20);
        Set<String> topics = new HashSet<>();
        for (int i = 0; i < 200; i++) {
            Message<String> m = receive(consumer);
            topics.add(m.getTopicName());
            consumer.acknowledge(m);
        }
        same(topics.size(), 4);
    }

    public static class Thing {
        public int number;
        public String text;
    }

    public static class Other {
        public List<Long> longs;
        public long number;
    }

    static void schemas(String topic) throws Exception {
        for (Schema<Thing> schema : List.of(Schema.AVRO(Thing.class), Schema.JSON(Thing.class))) {
            String name = topic + schema.getSchemaInfo().getType();
            Consumer<GenericRecord> any = client.newConsumer(Schema.AUTO_CONSUME()).topic(name).subscriptionName("any").subscribe();
            Consumer<Thing> consumer = client.newConsumer(schema).topic(name).subscriptionName("s").subscribe();
            Thing thing = new Thing();
            thing.number = 7;
            thing.text = "x";
            client.newProducer(schema).topic(name).create().send(thing);
            Thing found = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS).getValue();
            expect(found.number == 7 && found.text.equals("x"), "another value");
            same(String.valueOf(any.receive(TIMEOUT_S, TimeUnit.SECONDS).getValue().getField("text")), "x");
            try {
                client.newProducer(Schema.AVRO(Other.class)).topic(name).create();
                expect(false, "another schema is compatible");
            } catch (PulsarClientException.IncompatibleSchemaException error) {
                continue;
            }
        }
    }

    static void delays(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create();
        producer.newMessage().value("later").deliverAfter(2, TimeUnit.SECONDS).send();
        producer.send("now");
        same(take(consumer, 2), List.of("now", "later"));
    }

    static void tables(String topic) throws Exception {
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create();
        for (String pair : List.of("a1", "b2", "a3")) producer.newMessage().key(pair.substring(0, 1)).value(pair).send();
        TableView<String> view = client.newTableView(Schema.STRING).topic(topic).create();
        for (int i = 0; i < 1000 && !"a3".equals(view.get("a")); i++) Thread.sleep(10);
        same(view.get("a"), "a3");
        producer.newMessage().key("c").value("c4").send();
        for (int i = 0; i < 1000 && view.size() < 3; i++) Thread.sleep(10);
        same(view.get("c"), "c4");
    }

    static void exclusive(String topic) throws Exception {
        ProducerBuilder<String> only = client.newProducer(Schema.STRING).topic(topic).accessMode(ProducerAccessMode.Exclusive);
        Producer<String> producer = only.clone().create();
        try {
            only.clone().create();
            expect(false, "there are two");
        } catch (PulsarClientException.ProducerFencedException error) {
            producer.close();
        }
        only.clone().create();
        consumer(topic).subscribe();
        try {
            consumer(topic).subscribe();
            expect(false, "there are two consumers");
        } catch (PulsarClientException.ConsumerBusyException error) {
            return;
        }
    }

    /** What is sent to a topic that is not persistent is for those who are there, with permits. */
    static void notPersistent(String name) throws Exception {
        String topic = "non-persistent://public/default/" + name;
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create();
        producer.send("for nobody");
        Consumer<String> one = consumer(topic).subscribe();
        ConsumerBuilder<String> shared = consumer(topic).subscriptionName("shared").subscriptionType(SubscriptionType.Shared);
        Consumer<String> two = shared.clone().subscribe(), three = shared.clone().subscribe();
        sendMany(producer, 300, 0);
        same(take(one, 300), numbers(0, 300));
        Set<String> found = new HashSet<>();
        for (int turn = 0; found.size() < 300 && turn < 3000; turn++) {
            Message<String> m = (turn % 2 == 0 ? two : three).receive(100, TimeUnit.MILLISECONDS);
            if (m != null) found.add(m.getValue());
        }
        same(found.size(), 300);
        one.close();
        producer.send("for nobody");
        expect(consumer(topic).subscribe().receive(500, TimeUnit.MILLISECONDS) == null, "something came for nobody");
    }

    static void chunksNotPersistent(String name) throws Exception {
        String topic = "non-persistent://public/default/" + name;
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(false)
            .enableChunking(true).chunkMaxMessageSize(100_000).create();
        String large = "0123456789".repeat(123_457);
        producer.send(large);
        // This client then gives it once more, as it does at a real broker: all messages have the same id here.
        expect(take(consumer, 1).get(0).equals(large), "another message");
    }

    /** A consumer that takes nothing gets what it has permits for, and all others get theirs. */
    static void notPersistentAndSlow(String name) throws Exception {
        String topic = "non-persistent://public/default/" + name;
        Consumer<String> slow = consumer(topic).subscriptionName("slow").receiverQueueSize(10).subscribe();
        Consumer<String> quick = consumer(topic).subscribe();
        Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create();
        for (int i = 0; i < 100; i++) {
            producer.send(String.valueOf(i));
            same(take(quick, 1), numbers(i, i + 1));
        }
        same(take(slow, 10), numbers(0, 10));
        producer.send("after");
        same(take(slow, 1), List.of("after"));
    }

    /** Those that the environment's ONLY names, if it does. Arguments: the URL, and perhaps a token and whom to trust. */
    static void runAll(String[] arguments, String prefix, Map<String, Scenario> all) throws Exception {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(arguments[0])
            .operationTimeout(TIMEOUT_S, TimeUnit.SECONDS).enableTransaction(true);
        if (arguments.length > 1) {
            builder.authentication(AuthenticationFactory.token(arguments[1])).tlsTrustCertsFilePath(arguments[2]);
        }
        client = builder.build();
        String only = System.getenv("ONLY");
        if (only != null) all.keySet().retainAll(List.of(only.split(",")));
        boolean failed = false;
        for (Map.Entry<String, Scenario> one : all.entrySet()) {
            try {
                one.getValue().run(prefix + one.getKey().replace(' ', '-'));
                System.out.println("ok " + one.getKey());
            } catch (Throwable error) {
                failed = true;
                System.out.println("failed " + one.getKey() + ": " + error);
            }
        }
        System.exit(failed ? 1 : 0);
    }
    public static void main(String[] arguments) throws Exception {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("compressions", Scenarios::compressions);
        all.put("chunks", Scenarios::chunks);
        all.put("properties", Scenarios::properties);
        all.put("shared", Scenarios::shared);
        all.put("dead letters", Scenarios::deadLetters);
        all.put("key shared", Scenarios::keyShared);
        all.put("failover", Scenarios::failover);
        all.put("readers", Scenarios::readers);
        all.put("patterns", Scenarios::patterns);
        all.put("partitions", Scenarios::partitions);
        all.put("schemas", Scenarios::schemas);
        all.put("delays", Scenarios::delays);
        all.put("tables", Scenarios::tables);
        all.put("exclusive", Scenarios::exclusive);
        all.put("not persistent", Scenarios::notPersistent);
        all.put("chunks not persistent", Scenarios::chunksNotPersistent);
        all.put("not persistent and slow", Scenarios::notPersistentAndSlow);
        runAll(arguments, "java-", all);
    }
}
