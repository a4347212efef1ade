import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Transactions with Pulsar's official Java client: `java Transactions SERVICE-URL`, beside the classes of Scenarios. */
public class Transactions extends Scenarios {
    static final int QUIET_MS = 400;

    static Transaction begin(int seconds) throws Exception {
        return client.newTransaction().withTransactionTimeout(seconds, TimeUnit.SECONDS).build().get();
    }

    static Transaction begin() throws Exception {
        return begin(120);
    }

    static ProducerBuilder<String> producer(String topic) {
        return client.newProducer(Schema.STRING).topic(topic).sendTimeout(0, TimeUnit.SECONDS);
    }

    static void sendAll(Producer<String> producer, Transaction in, List<String> values) throws Exception {
        List<CompletableFuture<MessageId>> all = new ArrayList<>();
        for (String value : values) all.add(producer.newMessage(in).value(value).sendAsync());
        for (CompletableFuture<MessageId> one : all) one.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    static void nothing(Consumer<String> consumer) throws PulsarClientException {
        Message<String> m = consumer.receive(QUIET_MS, TimeUnit.MILLISECONDS);
        expect(m == null, m == null ? "" : m.getValue() + " came");
    }

    static List<Message<String>> receiveMany(Consumer<String> consumer, int count) throws Exception {
        List<Message<String>> found = new ArrayList<>();
        for (int i = 0; i < count; i++) found.add(receive(consumer));
        return found;
    }

    static Set<String> values(List<Message<String>> messages) {
        Set<String> found = new HashSet<>();
        for (Message<String> m : messages) expect(found.add(m.getValue()), m.getValue() + " came twice");
        return found;
    }

    static Class<?> failure(CompletableFuture<?> future) throws Exception {
        try {
            future.get(TIMEOUT_S, TimeUnit.SECONDS);
            return null;
        } catch (ExecutionException error) {
            Throwable why = error.getCause();
            return (why.getCause() instanceof PulsarClientException ? why.getCause() : why).getClass();
        }
    }

    static void committed(String topic) throws Exception {
        List<Consumer<String>> consumers = new ArrayList<>();
        Transaction txn = begin();
        List<String> topics = List.of(topic + "-1", topic + "-2", "java-partitioned-t");
        for (String name : topics) {
            consumers.add(consumer(name).subscribe());
            sendAll(producer(name).create(), txn, numbers(0, 100));
        }
        for (Consumer<String> consumer : consumers) nothing(consumer);
        txn.commit().get();
        same(take(consumers.get(0), 100), numbers(0, 100));
        same(take(consumers.get(1), 100), numbers(0, 100));
        same(values(receiveMany(consumers.get(2), 100)), new HashSet<>(numbers(0, 100)));
        same(txn.getState(), Transaction.State.COMMITTED);
    }

    static void aborted(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = producer(topic).create();
        Transaction txn = begin();
        sendAll(producer, txn, numbers(0, 50));
        producer.send("behind");
        nothing(consumer);
        txn.abort().get();
        same(take(consumer, 1), List.of("behind"));
        nothing(consumer);
        same(txn.getState(), Transaction.State.ABORTED);
    }

    static void order(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = producer(topic).enableBatching(false).create();
        Transaction one = begin(), two = begin(), three = begin();
        sendAll(producer, one, List.of("a1"));
        producer.send("b");
        sendAll(producer, two, List.of("c2"));
        sendAll(producer, three, List.of("d3"));
        sendAll(producer, one, List.of("e1"));
        two.commit().get();
        three.abort().get();
        nothing(consumer);
        one.commit().get();
        List<Message<String>> found = receiveMany(consumer, 4);
        for (int i = 1; i < found.size(); i++)
            expect(found.get(i - 1).getMessageId().compareTo(found.get(i).getMessageId()) < 0, "ids fall");
        same(found.stream().map(Message::getValue).toList(), List.of("a1", "b", "c2", "e1"));
    }

    static void readersSeeNothing(String topic) throws Exception {
        Producer<String> producer = producer(topic).create();
        producer.send("0");
        Transaction txn = begin();
        sendAll(producer, txn, List.of("1", "2"));
        Reader<String> reader = client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create();
        same(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS).getValue(), "0");
        expect(!reader.hasMessageAvailable(), "what is not committed is available");
        txn.abort().get();
        expect(!reader.hasMessageAvailable(), "what was aborted is available");
        txn = begin();
        sendAll(producer, txn, List.of("3"));
        txn.commit().get();
        expect(reader.hasMessageAvailable(), "what was committed is not available");
        same(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS).getValue(), "3");
        reader.seek(MessageId.earliest);
        same(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS).getValue(), "0");
        same(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS).getValue(), "3");
        expect(!reader.hasMessageAvailable(), "something is behind the end");
    }

    static void acknowledged(String topic) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            String name = topic + "-" + type;
            ConsumerBuilder<String> builder = consumer(name).subscriptionType(type).enableBatchIndexAcknowledgment(true);
            Consumer<String> consumer = builder.subscribe();
            sendMany(producer(name).batcherBuilder(BatcherBuilder.KEY_BASED).create(), 40, 4);
            List<Message<String>> all = receiveMany(consumer, 40);
            Transaction kept = begin(), dropped = begin();
            Set<String> left = new HashSet<>();
            for (int i = 0; i < all.size(); i++) {
                if (i % 4 == 3) {
                    left.add(all.get(i).getValue());
                    continue;
                }
                consumer.acknowledgeAsync(all.get(i).getMessageId(), i % 4 == 0 ? dropped : kept).get();
                if (i % 4 == 0) left.add(all.get(i).getValue());
            }
            nothing(consumer);
            kept.commit().get();
            dropped.abort().get();
            consumer.close();
            consumer = builder.subscribe();
            same(values(receiveMany(consumer, left.size())), left);
            nothing(consumer);
            consumer.close();
        }
    }

    static void comesAgain(String topic) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
            Consumer<String> consumer = consumer(topic + type).subscriptionType(type).subscribe();
            sendMany(producer(topic + type).enableBatching(false).create(), 10, 0);
            List<Message<String>> all = receiveMany(consumer, 10);
            Transaction txn = begin();
            for (int i = 0; i < 5; i++) consumer.acknowledgeAsync(all.get(i).getMessageId(), txn).get();
            txn.abort().get();
            same(values(receiveMany(consumer, 5)), new HashSet<>(numbers(0, 5)));
        }
    }

    static void upTo(String topic) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Failover)) {
            for (boolean batches : new boolean[] {false, true}) {
                String name = topic + type + batches;
                ConsumerBuilder<String> builder = consumer(name).subscriptionType(type).enableBatchIndexAcknowledgment(true);
                Consumer<String> consumer = builder.subscribe();
                sendMany(producer(name).enableBatching(batches).create(), 30, 0);
                List<Message<String>> all = receiveMany(consumer, 30);
                Transaction txn = begin();
                consumer.acknowledgeCumulativeAsync(all.get(4).getMessageId(), txn).get();
                consumer.acknowledgeCumulativeAsync(all.get(9).getMessageId(), txn).get();
                txn.abort().get();
                same(receive(consumer).getValue(), "0");
                txn = begin();
                consumer.acknowledgeCumulativeAsync(all.get(14).getMessageId(), txn).get();
                txn.commit().get();
                consumer.close();
                consumer = builder.subscribe();
                same(take(consumer, 15), numbers(15, 30));
                consumer.close();
            }
        }
    }

    static void conflicts(String topic) throws Exception {
        ConsumerBuilder<String> builder = consumer(topic).subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true);
        Consumer<String> consumer = builder.subscribe();
        sendMany(producer(topic).create(), 10, 0);
        List<Message<String>> all = receiveMany(consumer, 10);
        Transaction one = begin(), two = begin(), three = begin();
        consumer.acknowledgeAsync(all.get(0).getMessageId(), one).get();
        Class<?> conflict = PulsarClientException.TransactionConflictException.class;
        same(failure(consumer.acknowledgeAsync(all.get(0).getMessageId(), two)), conflict);
        consumer.acknowledgeAsync(all.get(1).getMessageId(), three).get();
        Class<?> refused = failure(two.commit());
        expect(refused != null, "a transaction in which an acknowledgement failed is committed");
        same(two.getState(), Transaction.State.ABORTED);
        one.commit().get();
        three.commit().get();
        consumer.close();
        same(values(receiveMany(builder.subscribe(), 8)), new HashSet<>(numbers(2, 10)));
    }

    static void timesOut(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = producer(topic).create();
        Transaction txn = begin(1);
        sendAll(producer, txn, List.of("never"));
        producer.send("behind");
        same(take(consumer, 1), List.of("behind"));
        expect(failure(txn.commit()) != null, "what timed out is committed");
        same(txn.getState(), Transaction.State.TIME_OUT);
    }

    static void exactlyOnce(String topic) throws Exception {
        Consumer<String> source = consumer(topic + "-in").subscriptionType(SubscriptionType.Shared)
            .enableBatchIndexAcknowledgment(true).subscribe();
        Consumer<String> sink = consumer(topic + "-out").subscribe();
        Producer<String> producer = producer(topic + "-out").create();
        // Of a batch that comes again the client gives what it has of it already, too.
        sendMany(producer(topic + "-in").enableBatching(false).create(), 200, 0);
        for (int turn = 0, done = 0; done < 200; turn++) {
            Transaction txn = begin();
            int taken = 0;
            for (Message<String> m; taken < 10 && (m = source.receive(taken == 0 ? 5000 : 200, TimeUnit.MILLISECONDS)) != null; taken++) {
                producer.newMessage(txn).value(m.getValue()).sendAsync();
                source.acknowledgeAsync(m.getMessageId(), txn);
            }
            expect(taken > 0, done + " are done, and no more comes");
            if (turn % 3 == 1) {
                txn.abort().get();
            } else {
                txn.commit().get();
                done += taken;
            }
        }
        same(values(receiveMany(sink, 200)), new HashSet<>(numbers(0, 200)));
        nothing(sink);
        nothing(source);
    }

    static void large(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).receiverQueueSize(5000).subscribe();
        Transaction txn = begin();
        sendAll(producer(topic).blockIfQueueFull(true).create(), txn, numbers(0, 5000));
        nothing(consumer);
        txn.commit().get();
        List<Message<String>> all = receiveMany(consumer, 5000);
        same(all.stream().map(Message::getValue).toList(), numbers(0, 5000));
        txn = begin();
        List<CompletableFuture<Void>> acks = new ArrayList<>();
        for (Message<String> m : all) acks.add(consumer.acknowledgeAsync(m.getMessageId(), txn));
        for (CompletableFuture<Void> ack : acks) ack.get();
        txn.commit().get();
        consumer.close();
        nothing(consumer(topic).subscribe());
    }

    static void chunksIn(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        String large = "0123456789".repeat(700_000);
        Producer<String> producer = producer(topic).enableBatching(false).enableChunking(true).create();
        Transaction txn = begin();
        sendAll(producer, txn, List.of(large, "small"));
        nothing(consumer);
        txn.commit().get();
        same(take(consumer, 2), List.of(large, "small"));
    }

    static void compactedReads(String topic) throws Exception {
        Producer<String> producer = producer(topic).create();
        Transaction kept = begin(), dropped = begin();
        producer.newMessage().key("a").value("a0").send();
        producer.newMessage(kept).key("a").value("a1").send();
        producer.newMessage(dropped).key("a").value("a2").send();
        producer.newMessage(kept).key("b").value("b1").send();
        kept.commit().get();
        dropped.abort().get();
        TableView<String> view = client.newTableView(Schema.STRING).topic(topic).create();
        for (int i = 0; i < 1000 && view.size() < 2; i++) Thread.sleep(10);
        same(new java.util.TreeMap<>(Map.of("a", view.get("a"), "b", view.get("b"))).toString(), "{a=a1, b=b1}");
    }

    static void seekAmidst(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = producer(topic).enableBatching(false).create();
        Transaction txn = begin();
        producer.send("0");
        sendAll(producer, txn, List.of("1"));
        producer.send("2");
        same(take(consumer, 1), List.of("0"));
        consumer.seek(MessageId.earliest);
        same(take(consumer, 1), List.of("0"));
        nothing(consumer);
        txn.commit().get();
        same(take(consumer, 2), List.of("1", "2"));
        consumer.seek(MessageId.earliest);
        same(take(consumer, 3), numbers(0, 3));
    }

    static void deduplicated(String topic) throws Exception {
        Consumer<String> consumer = consumer(topic).subscribe();
        Producer<String> producer = producer(topic).producerName("p").enableBatching(false).create();
        Transaction txn = begin();
        for (int i = 0; i < 3; i++) producer.newMessage(txn).sequenceId(i + 10).value(String.valueOf(i)).send();
        txn.commit().get();
        same(take(consumer, 3), numbers(0, 3));
        producer.close();
        same(producer(topic).producerName("p").create().getLastSequenceId() >= -1, true);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Scenario> all = new java.util.LinkedHashMap<>();
        all.put("committed", Transactions::committed);
        all.put("aborted", Transactions::aborted);
        all.put("order", Transactions::order);
        all.put("readers see nothing", Transactions::readersSeeNothing);
        all.put("acknowledged", Transactions::acknowledged);
        all.put("comes again", Transactions::comesAgain);
        all.put("up to", Transactions::upTo);
        all.put("conflicts", Transactions::conflicts);
        all.put("times out", Transactions::timesOut);
        all.put("exactly once", Transactions::exactlyOnce);
        all.put("large", Transactions::large);
        all.put("chunks in", Transactions::chunksIn);
        all.put("compacted reads", Transactions::compactedReads);
        all.put("seek amidst", Transactions::seekAmidst);
        all.put("deduplicated", Transactions::deduplicated);
        runAll(arguments, "java-txn-", all);
    }
}
