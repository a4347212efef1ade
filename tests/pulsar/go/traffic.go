// Traffic under credentials that change: SERVICE-URL traffic SECONDS token TOKEN-FILE | certificate CERT KEY CA
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// traffic sends numbered messages for so long, and consumes them. Each must come, whatever happens to its connection.
func traffic(options pulsar.ClientOptions, arguments []string) {
	length, err := time.ParseDuration(arguments[0] + "s")
	check(err)
	switch arguments[1] {
	case "token":
		options.Authentication = pulsar.NewAuthenticationTokenFromFile(arguments[2])
	case "certificate":
		options.Authentication = pulsar.NewAuthenticationTLS(arguments[2], arguments[3])
		options.TLSTrustCertsFilePath = arguments[4]
	}
	client, err := pulsar.NewClient(options)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), length+waitTimeout)
	defer cancel()
	s := &side{client, "traffic", ctx}
	consumer := s.consumer(pulsar.ConsumerOptions{
		Type: pulsar.Shared, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	producer := s.producer(pulsar.ProducerOptions{})
	sent := make(chan int)
	go func() {
		count := 0
		for end := time.Now().Add(length); time.Now().Before(end); count++ {
			s.send(producer, fmt.Sprint(count))
			time.Sleep(5 * time.Millisecond)
		}
		sent <- count
	}()
	found, count := map[string]bool{}, -1
	for count < 0 || len(found) < count {
		select {
		case message := <-consumer.Chan():
			found[string(message.Payload())] = true
			check(consumer.Ack(message.Message))
		case count = <-sent:
		case <-s.ctx.Done():
			fmt.Printf("failed traffic: %d of %d came\n", len(found), count)
			os.Exit(1)
		}
	}
	fmt.Printf("ok traffic: %d\n", count)
}
