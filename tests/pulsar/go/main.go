// Scenarios with Pulsar's official Go client.
//
//	go run . SERVICE-URL [TOKEN]
//	go run . SERVICE-URL traffic ...    see traffic.go
//
// Each says "ok NAME" or "failed NAME: why"; the status is 1 if one failed. They run beside each other, on topics of their own.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	waitTimeout = 30 * time.Second
	quiet       = 500 * time.Millisecond
)

type scenario func(s *side)

// side is what a scenario works with. What goes wrong panics with an error.
type side struct {
	client pulsar.Client
	name   string
	ctx    context.Context
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(is bool, format string, arguments ...any) {
	if !is {
		panic(fmt.Errorf(format, arguments...))
	}
}

func (s *side) topic(name string) string {
	return "go-" + strings.ReplaceAll(s.name, " ", "-") + "-" + name
}

func (s *side) producer(options pulsar.ProducerOptions) pulsar.Producer {
	if options.Topic == "" {
		options.Topic = s.topic("t")
	}
	producer, err := s.client.CreateProducer(options)
	check(err)
	return producer
}

func (s *side) consumer(options pulsar.ConsumerOptions) pulsar.Consumer {
	if options.Topic == "" && options.TopicsPattern == "" && options.Topics == nil {
		options.Topic = s.topic("t")
	}
	if options.SubscriptionName == "" {
		options.SubscriptionName = "s"
	}
	consumer, err := s.client.Subscribe(options)
	check(err)
	return consumer
}

func (s *side) send(p pulsar.Producer, payloads ...string) {
	for _, payload := range payloads {
		_, err := p.Send(s.ctx, &pulsar.ProducerMessage{Payload: []byte(payload)})
		check(err)
	}
}

func (s *side) sendMany(p pulsar.Producer, count int, key func(int) string) {
	var failed error
	for i := 0; i < count; i++ {
		message := &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}
		if key != nil {
			message.Key = key(i)
		}
		p.SendAsync(s.ctx, message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	check(p.Flush())
	check(failed)
}

func (s *side) receive(c pulsar.Consumer) pulsar.Message {
	message, err := c.Receive(s.ctx)
	check(err)
	return message
}

func (s *side) texts(c pulsar.Consumer, count int) []string {
	var found []string
	for i := 0; i < count; i++ {
		message := s.receive(c)
		found = append(found, string(message.Payload()))
		check(c.Ack(message))
	}
	return found
}

func (s *side) nothing(c pulsar.Consumer) {
	ctx, cancel := context.WithTimeout(s.ctx, quiet)
	defer cancel()
	message, err := c.Receive(ctx)
	expect(err != nil, "%v came", message)
}

func numbers(count int) []string {
	var found []string
	for i := 0; i < count; i++ {
		found = append(found, fmt.Sprint(i))
	}
	return found
}

func same(found, expected []string) {
	expect(strings.Join(found, " ") == strings.Join(expected, " "), "%v and not %v", found, expected)
}

func batchesOfEveryCompression(s *side) {
	kinds := []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD}
	for i, kind := range kinds {
		topic := s.topic(fmt.Sprint(i))
		consumer := s.consumer(pulsar.ConsumerOptions{Topic: topic})
		producer := s.producer(pulsar.ProducerOptions{Topic: topic, CompressionType: kind, BatchingMaxMessages: 50})
		s.sendMany(producer, 500, nil)
		same(s.texts(consumer, 500), numbers(500))
	}
}

func whatAMessageCarries(s *side) {
	consumer := s.consumer(pulsar.ConsumerOptions{})
	producer := s.producer(pulsar.ProducerOptions{Name: "named", DisableBatching: true})
	at := time.UnixMilli(1700000000123)
	id, err := producer.Send(s.ctx, &pulsar.ProducerMessage{
		Payload: []byte{0, 255}, Key: "k", OrderingKey: "o", EventTime: at, Properties: map[string]string{"a": "ä"},
	})
	check(err)
	m := s.receive(consumer)
	expect(bytes.Equal(m.Payload(), []byte{0, 255}) && m.Key() == "k" && m.OrderingKey() == "o", "another message")
	expect(m.EventTime().Equal(at) && m.Properties()["a"] == "ä" && m.ProducerName() == "named", "other properties")
	expect(m.ID().LedgerID() == id.LedgerID() && m.ID().EntryID() == id.EntryID(), "%v and not %v", m.ID(), id)
	last, err := consumer.GetLastMessageIDs()
	check(err)
	expect(len(last) == 1 && last[0].EntryID() == id.EntryID(), "%v is last", last)
}

func chunks(s *side) {
	consumer := s.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
	producer := s.producer(pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 100_000})
	payload := strings.Repeat("0123456789", 123_457)
	s.send(producer, payload, "small", payload)
	same(s.texts(consumer, 3), []string{payload, "small", payload})
}

func sharedAndRedelivered(s *side) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: 100 * time.Millisecond}
	one, two := s.consumer(options), s.consumer(options)
	s.sendMany(s.producer(pulsar.ProducerOptions{DisableBatching: true}), 100, nil)
	seen := map[string]uint32{}
	for len(seen) < 100 {
		select {
		case m := <-one.Chan():
			if m.RedeliveryCount() == 0 {
				one.Nack(m)
				continue
			}
			seen[string(m.Payload())] = m.RedeliveryCount()
			check(one.Ack(m))
		case m := <-two.Chan():
			seen[string(m.Payload())] = m.RedeliveryCount()
			check(two.Ack(m))
		case <-s.ctx.Done():
			panic(fmt.Errorf("%d came", len(seen)))
		}
	}
	s.nothing(one)
	s.nothing(two)
}

func deadLetters(s *side) {
	dead := s.consumer(pulsar.ConsumerOptions{Topic: s.topic("dead"), SubscriptionName: "d"})
	consumer := s.consumer(pulsar.ConsumerOptions{
		Type: pulsar.Shared, NackRedeliveryDelay: 50 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: s.topic("dead")},
	})
	s.send(s.producer(pulsar.ProducerOptions{}), "bad", "good")
	go func() {
		for m := range consumer.Chan() {
			if string(m.Payload()) == "bad" {
				consumer.Nack(m)
			} else {
				_ = consumer.Ack(m)
			}
		}
	}()
	same(s.texts(dead, 1), []string{"bad"})
}

func exclusivePlaces(s *side) {
	consumer := s.consumer(pulsar.ConsumerOptions{})
	_, err := s.client.Subscribe(pulsar.ConsumerOptions{Topic: s.topic("t"), SubscriptionName: "s"})
	expect(err != nil && strings.Contains(err.Error(), "ConsumerBusy"), "a second one: %v", err)
	consumer.Close()
	s.consumer(pulsar.ConsumerOptions{})
	only := pulsar.ProducerOptions{Topic: s.topic("t"), ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	producer := s.producer(only)
	_, err = s.client.CreateProducer(only)
	expect(err != nil && strings.Contains(err.Error(), "ProducerFenced"), "a second producer: %v", err)
	producer.Close()
	s.producer(only)
}

type listener struct {
	mu     sync.Mutex
	active map[string]bool
}

func (l *listener) set(c pulsar.Consumer, active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active[c.Name()] = active
}
func (l *listener) BecameActive(c pulsar.Consumer, _ string, _ int32)   { l.set(c, true) }
func (l *listener) BecameInactive(c pulsar.Consumer, _ string, _ int32) { l.set(c, false) }

func failover(s *side) {
	l := &listener{active: map[string]bool{}}
	open := func(name string) pulsar.Consumer {
		return s.consumer(pulsar.ConsumerOptions{Type: pulsar.Failover, Name: name, EventListener: l})
	}
	both := map[string]pulsar.Consumer{"a": open("a"), "b": open("b")}
	producer := s.producer(pulsar.ProducerOptions{DisableBatching: true})
	s.sendMany(producer, 20, nil)
	time.Sleep(1500 * time.Millisecond)
	l.mu.Lock()
	active, other := "a", "b"
	if !l.active["a"] {
		active, other = "b", "a"
	}
	expect(l.active[active] && !l.active[other], "%v are active", l.active)
	l.mu.Unlock()
	for i := 0; i < 10; i++ {
		check(both[active].AckCumulative(s.receive(both[active])))
	}
	both[active].Close()
	same(s.texts(both[other], 10), numbers(20)[10:])
}

func keyShared(s *side) {
	var found [3]map[string][]string
	var consumers []pulsar.Consumer
	for i := range found {
		found[i] = map[string][]string{}
		consumers = append(consumers, s.consumer(pulsar.ConsumerOptions{Type: pulsar.KeyShared, Name: fmt.Sprint("c", i)}))
	}
	producer := s.producer(pulsar.ProducerOptions{BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	s.sendMany(producer, 600, func(i int) string { return fmt.Sprint("k", i%30) })
	for count := 0; count < 600; count++ {
		var at int
		var m pulsar.ConsumerMessage
		select {
		case m = <-consumers[0].Chan():
		case m = <-consumers[1].Chan():
			at = 1
		case m = <-consumers[2].Chan():
			at = 2
		case <-s.ctx.Done():
			panic(fmt.Errorf("%d came", count))
		}
		found[at][m.Key()] = append(found[at][m.Key()], string(m.Payload()))
		check(consumers[at].Ack(m))
	}
	keys := 0
	for _, of := range found {
		keys += len(of)
		for key, values := range of {
			for i := 1; i < len(values); i++ {
				expect(len(values[i-1]) < len(values[i]) || values[i-1] < values[i], "%s is out of order: %v", key, values)
			}
		}
	}
	expect(keys == 30, "keys have %d places", keys)
}

func batchesInPart(s *side) {
	options := pulsar.ConsumerOptions{
		Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true, AckWithResponse: true,
		AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1},
	}
	consumer := s.consumer(options)
	producer := s.producer(pulsar.ProducerOptions{BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second})
	s.sendMany(producer, 10, nil)
	for i := 0; i < 10; i++ {
		m := s.receive(consumer)
		if i%2 == 0 {
			check(consumer.Ack(m))
		}
	}
	consumer.Close()
	same(s.texts(s.consumer(options), 5), []string{"1", "3", "5", "7", "9"})
}

func readers(s *side) {
	producer := s.producer(pulsar.ProducerOptions{BatchingMaxMessages: 4})
	s.sendMany(producer, 20, nil)
	read := func(options pulsar.ReaderOptions, count int) []pulsar.Message {
		options.Topic = s.topic("t")
		reader, err := s.client.CreateReader(options)
		check(err)
		defer reader.Close()
		var found []pulsar.Message
		for len(found) < count && reader.HasNext() {
			m, err := reader.Next(s.ctx)
			check(err)
			found = append(found, m)
		}
		expect(len(found) == count, "%d of %d", len(found), count)
		return found
	}
	all := read(pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()}, 20)
	read(pulsar.ReaderOptions{StartMessageID: pulsar.LatestMessageID()}, 0)
	rest := read(pulsar.ReaderOptions{StartMessageID: all[6].ID()}, 13)
	expect(string(rest[0].Payload()) == "7", "%s is first", rest[0].Payload())
	rest = read(pulsar.ReaderOptions{StartMessageID: all[6].ID(), StartMessageIDInclusive: true}, 14)
	expect(string(rest[0].Payload()) == "6", "%s is first", rest[0].Payload())
}

func seeks(s *side) {
	// Its acknowledgements are not grouped: the client lets fall what it believes to be acknowledged.
	ungrouped := &pulsar.AckGroupingOptions{MaxSize: 1}
	consumer := s.consumer(pulsar.ConsumerOptions{AckGroupingOptions: ungrouped})
	producer := s.producer(pulsar.ProducerOptions{DisableBatching: true})
	first, err := producer.Send(s.ctx, &pulsar.ProducerMessage{Payload: []byte("0")})
	check(err)
	s.send(producer, "1", "2")
	time.Sleep(50 * time.Millisecond)
	middle := time.Now()
	time.Sleep(50 * time.Millisecond)
	s.send(producer, "3", "4")
	same(s.texts(consumer, 5), numbers(5))
	check(consumer.Seek(first))
	same(s.texts(consumer, 4), numbers(5)[1:]) // behind it: the client passes over the message itself
	check(consumer.SeekByTime(middle))
	same(s.texts(consumer, 2), []string{"3", "4"})
	s.nothing(consumer)
	check(consumer.Unsubscribe())
}

func patternsAndMany(s *side) {
	pattern := s.consumer(pulsar.ConsumerOptions{
		TopicsPattern: "public/default/" + s.topic("p") + ".*", AutoDiscoveryPeriod: 300 * time.Millisecond,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	whole := "persistent://public/default/"
	names := []string{whole + s.topic("p1"), whole + s.topic("p2"), whole + s.topic("other")}
	for _, name := range names {
		s.send(s.producer(pulsar.ProducerOptions{Topic: name}), name)
	}
	found := s.texts(pattern, 2)
	sort.Strings(found)
	same(found, names[:2])
	many := s.consumer(pulsar.ConsumerOptions{
		Topics: names, SubscriptionName: "many", SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	found = s.texts(many, 3)
	sort.Strings(found)
	sort.Strings(names)
	same(found, names)
}

func partitions(s *side) {
	parts, err := s.client.TopicPartitions("go-partitioned")
	check(err)
	expect(len(parts) == 4, "%v", parts)
	consumer := s.consumer(pulsar.ConsumerOptions{Topic: "go-partitioned"})
	producer := s.producer(pulsar.ProducerOptions{Topic: "go-partitioned", DisableBatching: true})
	s.sendMany(producer, 200, func(i int) string { return fmt.Sprint(i % 20) })
	last := map[string]string{}
	used := map[int32]bool{}
	for i := 0; i < 200; i++ {
		m := s.receive(consumer)
		before, is := last[m.Key()]
		expect(!is || len(before) < len(m.Payload()) || before < string(m.Payload()), "%s is out of order", m.Key())
		last[m.Key()] = string(m.Payload())
		used[m.ID().PartitionIdx()] = true
		check(consumer.Ack(m))
	}
	expect(len(used) == 4, "%v", used)
}

type record struct {
	A int    `json:"a" avro:"a"`
	B string `json:"b" avro:"b"`
}

const schema = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"}]}`
const other = `{"type":"record","name":"R","fields":[{"name":"z","type":"long"}]}`

func schemas(s *side) {
	for _, of := range []pulsar.Schema{pulsar.NewJSONSchema(schema, nil), pulsar.NewAvroSchema(schema, nil)} {
		topic := s.topic(fmt.Sprint(of.GetSchemaInfo().Type))
		consumer := s.consumer(pulsar.ConsumerOptions{Topic: topic, Schema: of})
		producer := s.producer(pulsar.ProducerOptions{Topic: topic, Schema: of})
		_, err := producer.Send(s.ctx, &pulsar.ProducerMessage{Value: &record{7, "x"}})
		check(err)
		var found record
		check(s.receive(consumer).GetSchemaValue(&found))
		expect(found == record{7, "x"}, "%v", found)
		unlike := pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewAvroSchema(other, nil)}
		_, err = s.client.CreateProducer(unlike)
		expect(err != nil && strings.Contains(err.Error(), "IncompatibleSchema"), "another schema: %v", err)
	}
}

func delays(s *side) {
	consumer := s.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
	producer := s.producer(pulsar.ProducerOptions{})
	began := time.Now()
	_, err := producer.Send(s.ctx, &pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: 2 * time.Second})
	check(err)
	s.send(producer, "now")
	same(s.texts(consumer, 1), []string{"now"})
	expect(time.Since(began) < 1500*time.Millisecond, "after %v", time.Since(began))
	same(s.texts(consumer, 1), []string{"later"})
	expect(time.Since(began) > 900*time.Millisecond, "after %v", time.Since(began))
}

func tables(s *side) {
	producer := s.producer(pulsar.ProducerOptions{Schema: pulsar.NewBytesSchema(nil)})
	put := func(key, value string) {
		_, err := producer.Send(s.ctx, &pulsar.ProducerMessage{Key: key, Payload: []byte(value)})
		check(err)
	}
	put("a", "1")
	put("b", "2")
	put("a", "3")
	view, err := s.client.CreateTableView(pulsar.TableViewOptions{
		Topic: s.topic("t"), Schema: pulsar.NewBytesSchema(nil), SchemaValueType: reflect.TypeOf([]byte{}),
	})
	check(err)
	put("c", "4")
	for deadline := time.Now().Add(waitTimeout); view.Size() < 3; time.Sleep(10 * time.Millisecond) {
		expect(time.Now().Before(deadline), "%v", view.Keys())
	}
	value, is := view.Get("a").([]byte)
	expect(is && string(value) == "3", "%v", view.Get("a"))
}

func oneAtATime(s *side) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, EnableZeroQueueConsumer: true}
	one, two := s.consumer(options), s.consumer(options)
	producer := s.producer(pulsar.ProducerOptions{DisableBatching: true})
	s.send(producer, "0", "1")
	same(s.texts(one, 1), []string{"0"})
	same(s.texts(two, 1), []string{"1"})
}

// awaited sends until the consumer gets it: what comes before the broker has heard of permits is dropped.
func (s *side) awaited(p pulsar.Producer, c pulsar.Consumer, payload string) {
	for {
		s.send(p, payload)
		select {
		case m := <-c.Chan():
			same([]string{string(m.Payload())}, []string{payload})
			return
		case <-time.After(quiet):
		case <-s.ctx.Done():
			panic(fmt.Errorf("%s never came", payload))
		}
	}
}

// What is sent to a topic that is not persistent is for those who are there, with permits.
func notPersistent(s *side) {
	topic := "non-persistent://public/default/" + s.topic("t")
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 50})
	s.send(producer, "for nobody")
	one := s.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "one"})
	options := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "two", Type: pulsar.Shared}
	two, three := s.consumer(options), s.consumer(options)
	for _, consumer := range []pulsar.Consumer{one, two, three} {
		s.awaited(producer, consumer, "begin")
	}
	s.sendMany(producer, 300, nil)
	last := ""
	for i := 0; i < 300; i++ {
		for last = "begin"; last == "begin"; {
			last = string(s.receive(one).Payload())
		}
		same([]string{last}, []string{fmt.Sprint(i)})
	}
	seen := map[string]bool{}
	for len(seen) < 300 {
		var m pulsar.ConsumerMessage
		select {
		case m = <-two.Chan():
			two.Nack(m.Message)
		case m = <-three.Chan():
		case <-s.ctx.Done():
			panic(fmt.Errorf("%d came", len(seen)))
		}
		if text := string(m.Payload()); text != "begin" {
			seen[text] = true
		}
	}
	one.Close()
	s.send(producer, "for nobody")
	s.nothing(s.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "one"}))
}

func chunksThatAreNotPersistent(s *side) {
	topic := "non-persistent://public/default/" + s.topic("t")
	consumer := s.consumer(pulsar.ConsumerOptions{Topic: topic})
	producer := s.producer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 100_000,
	})
	payload := strings.Repeat("0123456789", 123_457)
	s.send(producer, payload, "small")
	same(s.texts(consumer, 2), []string{payload, "small"})
}

// A consumer that takes nothing gets as many messages as it has permits for, and the others get theirs. None is
// acknowledged: all have the same id, and this client drops what has one that it is about to acknowledge.
func notPersistentAndSlow(s *side) {
	topic := "non-persistent://public/default/" + s.topic("t")
	slow := s.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "slow", ReceiverQueueSize: 10})
	quick := s.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "quick"})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	s.awaited(producer, quick, "begin")
	for i := range 30 {
		s.send(producer, fmt.Sprint(i))
		same([]string{string(s.receive(quick).Payload())}, []string{fmt.Sprint(i)})
	}
	s.send(producer, "after") // may be dropped; what the client has room for came before it
	for count := 0; ; count++ {
		select {
		case m := <-slow.Chan():
			if string(m.Payload()) == "after" {
				return
			}
			expect(count < 20, "%d came, though there were no permits", count)
		case <-time.After(quiet):
			s.send(producer, "after")
		case <-s.ctx.Done():
			panic(fmt.Errorf("nothing came after what was dropped"))
		}
	}
}

var scenarios = map[string]scenario{
	"batches of every compression": batchesOfEveryCompression,
	"what a message carries":       whatAMessageCarries,
	"chunks":                       chunks,
	"shared and redelivered":       sharedAndRedelivered,
	"dead letters":                 deadLetters,
	"exclusive places":             exclusivePlaces,
	"failover":                     failover,
	"key shared":                   keyShared,
	"batches in part":              batchesInPart,
	"readers":                      readers,
	"seeks":                        seeks,
	"patterns and many":            patternsAndMany,
	"partitions":                   partitions,
	"schemas":                      schemas,
	"delays":                       delays,
	"tables":                       tables,
	"one at a time":                oneAtATime,
	"not persistent":               notPersistent,
	"chunks not persistent":        chunksThatAreNotPersistent,
	"not persistent and slow":      notPersistentAndSlow,
	"transactions of topics":       transactionsOfTopics,
	"acknowledged in transactions": acknowledgedInTransactions,
	"transactions in conflict":     transactionsThatConflict,
	"transactions too long":        transactionsThatTakeTooLong,
	"consumed and produced once":   consumedAndProducedOnce,
}

func run(client pulsar.Client, name string, does scenario) (why any) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	defer func() { why = recover() }()
	does(&side{client, name, ctx})
	return nil
}

func main() {
	logger := logrus.New()
	logger.SetLevel(logrus.PanicLevel)
	options := pulsar.ClientOptions{
		URL: os.Args[1], Logger: log.NewLoggerWithLogrus(logger), OperationTimeout: waitTimeout, EnableTransaction: true,
	}
	if len(os.Args) > 3 && os.Args[2] == "traffic" {
		traffic(options, os.Args[3:])
		return
	}
	if len(os.Args) > 3 {
		options.Authentication = pulsar.NewAuthenticationToken(os.Args[2])
		options.TLSTrustCertsFilePath = os.Args[3]
	}
	client, err := pulsar.NewClient(options)
	check(err)
	var wait sync.WaitGroup
	var mu sync.Mutex
	failed := false
	for name, does := range scenarios {
		wait.Add(1)
		go func() {
			defer wait.Done()
			why := run(client, name, does)
			mu.Lock()
			defer mu.Unlock()
			if why != nil {
				failed = true
				fmt.Printf("failed %s: %v\n", name, why)
			} else {
				fmt.Printf("ok %s\n", name)
			}
		}()
	}
	wait.Wait()
	if failed {
		os.Exit(1)
	}
}
