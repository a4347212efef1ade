package main

// The client's batches keep the number of a transaction for what comes behind it, and acknowledgements in one name all of a batch
// that was acknowledged before: so no batches here.

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (s *side) begin(timeout time.Duration) pulsar.Transaction {
	txn, err := s.client.NewTransaction(timeout)
	check(err)
	return txn
}

func (s *side) sendIn(p pulsar.Producer, txn pulsar.Transaction, payloads ...string) {
	for _, payload := range payloads {
		_, err := p.Send(s.ctx, &pulsar.ProducerMessage{Payload: []byte(payload), Transaction: txn})
		check(err)
	}
}

func transactionsOfTopics(s *side) {
	names := []string{s.topic("a"), s.topic("b")}
	var consumers []pulsar.Consumer
	var producers []pulsar.Producer
	for _, name := range names {
		consumers = append(consumers, s.consumer(pulsar.ConsumerOptions{Topic: name}))
		producers = append(producers, s.producer(pulsar.ProducerOptions{Topic: name, DisableBatching: true}))
	}
	kept, dropped := s.begin(time.Minute), s.begin(time.Minute)
	for _, producer := range producers {
		s.sendIn(producer, kept, "0", "1")
		s.sendIn(producer, dropped, "never")
		s.send(producer, "2")
	}
	for _, consumer := range consumers {
		s.nothing(consumer)
	}
	check(dropped.Abort(s.ctx))
	check(kept.Commit(s.ctx))
	for _, consumer := range consumers {
		same(s.texts(consumer, 3), numbers(3))
		s.nothing(consumer)
	}
	expect(kept.GetState() == pulsar.TxnCommitted && dropped.GetState() == pulsar.TxnAborted, "other states")
}

func acknowledgedInTransactions(s *side) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared}
	consumer := s.consumer(options)
	s.sendMany(s.producer(pulsar.ProducerOptions{DisableBatching: true}), 20, nil)
	kept, dropped := s.begin(time.Minute), s.begin(time.Minute)
	for i := 0; i < 20; i++ {
		txn := kept
		if i%2 == 1 {
			txn = dropped
		}
		check(consumer.AckWithTxn(s.receive(consumer), txn))
	}
	check(kept.Commit(s.ctx))
	check(dropped.Abort(s.ctx))
	consumer.Close()
	consumer = s.consumer(options)
	same(s.texts(consumer, 10), []string{"1", "3", "5", "7", "9", "11", "13", "15", "17", "19"})
	s.nothing(consumer)
}

func transactionsThatConflict(s *side) {
	consumer := s.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
	s.send(s.producer(pulsar.ProducerOptions{DisableBatching: true}), "0")
	message := s.receive(consumer)
	one, other := s.begin(time.Minute), s.begin(time.Minute)
	check(consumer.AckWithTxn(message, one))
	expect(consumer.AckWithTxn(message, other) != nil, "two have acknowledged it")
	check(one.Commit(s.ctx))
	expect(other.Commit(s.ctx) != nil, "what could not acknowledge is committed")
}

func transactionsThatTakeTooLong(s *side) {
	consumer := s.consumer(pulsar.ConsumerOptions{})
	producer := s.producer(pulsar.ProducerOptions{DisableBatching: true})
	txn := s.begin(time.Second)
	s.sendIn(producer, txn, "never")
	s.send(producer, "behind")
	same(s.texts(consumer, 1), []string{"behind"})
	expect(txn.Commit(s.ctx) != nil, "it was too late")
}

func consumedAndProducedOnce(s *side) {
	source := s.consumer(pulsar.ConsumerOptions{Topic: s.topic("in"), Type: pulsar.Shared})
	sink := s.consumer(pulsar.ConsumerOptions{Topic: s.topic("out")})
	producer := s.producer(pulsar.ProducerOptions{Topic: s.topic("out")})
	s.sendMany(s.producer(pulsar.ProducerOptions{Topic: s.topic("in"), DisableBatching: true}), 60, nil)
	for done, turn := 0, 0; done < 60; turn++ {
		txn := s.begin(time.Minute)
		for i := 0; i < 5; i++ {
			m := s.receive(source)
			s.sendIn(producer, txn, string(m.Payload()))
			check(source.AckWithTxn(m, txn))
		}
		if turn%3 == 1 {
			check(txn.Abort(s.ctx))
			continue
		}
		check(txn.Commit(s.ctx))
		done += 5
	}
	found := map[string]bool{}
	for _, text := range s.texts(sink, 60) {
		found[text] = true
	}
	expect(len(found) == 60, "%d came", len(found))
	s.nothing(sink)
	s.nothing(source)
}
