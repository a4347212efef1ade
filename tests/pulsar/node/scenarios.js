// Scenarios with Pulsar's official Node client.
//
//   node scenarios.js SERVICE-URL
//
// Each says "ok NAME" or "failed NAME: why"; the status is 1 if one failed. They run beside each other, on topics of their own.
'use strict';

const assert = require('node:assert/strict');
const Pulsar = require('pulsar-client');

const TIMEOUT_MS = 30_000;
const QUIET_MS = 500;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const numbers = (count) => Array.from({ length: count }, (_, i) => String(i));

// What a scenario works with.
class Side {
  constructor(client, name) {
    this.client = client;
    this.name = name.replaceAll(' ', '-');
  }

  topic(name = 't') {
    return `node-${this.name}-${name}`;
  }

  producer(options = {}) {
    return this.client.createProducer({ topic: this.topic(), batchingEnabled: false, ...options });
  }

  consumer(options = {}) {
    const elsewhere = options.topics || options.topicsPattern;
    const topic = elsewhere ? {} : { topic: this.topic() };
    return this.client.subscribe({ ...topic, subscription: 's', subscriptionType: 'Exclusive', ...options });
  }

  async send(producer, texts, more = () => ({})) {
    const ids = texts.map((text, i) => producer.send({ data: Buffer.from(text), ...more(i) }));
    await producer.flush();
    return Promise.all(ids);
  }

  async messages(consumer, count) {
    const found = [];
    while (found.length < count) {
      const message = await consumer.receive(TIMEOUT_MS);
      found.push(message);
      await consumer.acknowledge(message);
    }
    return found;
  }

  async texts(consumer, count) {
    return (await this.messages(consumer, count)).map((message) => message.getData().toString());
  }

  async nothing(consumer) {
    await assert.rejects(consumer.receive(QUIET_MS), /TimeOut/);
  }
}

const scenarios = {
  async 'batches of every compression'(s) {
    for (const compressionType of ['None', 'Zlib', 'LZ4', 'ZSTD', 'SNAPPY']) {
      const topic = s.topic(compressionType);
      const consumer = await s.consumer({ topic });
      const producer = await s.producer({ topic, compressionType, batchingEnabled: true, batchingMaxMessages: 50 });
      await s.send(producer, numbers(500));
      assert.deepEqual(await s.texts(consumer, 500), numbers(500));
    }
  },

  async 'what a message carries'(s) {
    const consumer = await s.consumer();
    const producer = await s.producer({ producerName: 'named-by-node' });
    const id = await producer.send({
      data: Buffer.from([0, 255]), partitionKey: 'k', orderingKey: 'o', eventTimestamp: 1700000000123, properties: { a: 'ä' },
    });
    const [message] = await s.messages(consumer, 1);
    assert.deepEqual([...message.getData()], [0, 255]);
    assert.deepEqual([message.getPartitionKey(), message.getOrderingKey()], ['k', 'o']);
    assert.deepEqual([message.getEventTimestamp(), { ...message.getProperties() }], [1700000000123, { a: 'ä' }]);
    assert.equal(message.getProducerName(), 'named-by-node');
    assert.equal(message.getMessageId().toString(), id.toString());
    assert.equal(Pulsar.MessageId.deserialize(id.serialize()).toString(), id.toString());
  },

  async chunks(s) {
    const consumer = await s.consumer({ subscriptionType: 'Shared' });
    const producer = await s.producer({ chunkingEnabled: true });
    const payload = '0123456789'.repeat(1_234_567);
    await s.send(producer, [payload, 'small', payload]);
    assert.deepEqual(await s.texts(consumer, 3), [payload, 'small', payload]);
  },

  async 'shared and redelivered'(s) {
    const options = { subscriptionType: 'Shared', nAckRedeliverTimeoutMs: 100 };
    const consumers = [await s.consumer(options), await s.consumer(options)];
    await s.send(await s.producer(), numbers(100));
    const seen = new Map();
    const consume = async (consumer, refuses) => {
      while (seen.size < 100) {
        const message = await consumer.receive(QUIET_MS).catch(() => null);
        if (message && refuses && message.getRedeliveryCount() === 0) consumer.negativeAcknowledge(message);
        else if (message) {
          seen.set(message.getData().toString(), message.getRedeliveryCount());
          await consumer.acknowledge(message);
        }
      }
    };
    await Promise.all([consume(consumers[0], true), consume(consumers[1], false)]);
    assert.deepEqual([...seen.keys()].sort(), numbers(100).sort());
    for (const consumer of consumers) await s.nothing(consumer);
  },

  async 'dead letters'(s) {
    const deadLetterTopic = s.topic('dead');
    const dead = await s.consumer({ topic: deadLetterTopic });
    const consumer = await s.consumer({
      subscriptionType: 'Shared', nAckRedeliverTimeoutMs: 50, deadLetterPolicy: { deadLetterTopic, maxRedeliverCount: 2 },
    });
    await s.send(await s.producer(), ['bad', 'good']);
    let going = true;
    const consuming = (async () => {
      while (going) {
        const message = await consumer.receive(QUIET_MS).catch(() => null);
        if (message && message.getData().toString() === 'bad') consumer.negativeAcknowledge(message);
        else if (message) await consumer.acknowledge(message);
      }
    })();
    assert.deepEqual(await s.texts(dead, 1), ['bad']);
    going = false;
    await consuming;
  },

  async 'exclusive places'(s) {
    const consumer = await s.consumer();
    await assert.rejects(s.consumer(), /ConsumerBusy/);
    await consumer.close();
    await (await s.consumer()).unsubscribe();
    const only = { accessMode: 'Exclusive' };
    const producer = await s.producer(only);
    await assert.rejects(s.producer(only), /ProducerFenced/);
    const waiting = s.producer({ accessMode: 'WaitForExclusive' });
    await producer.close();
    const second = await waiting;
    await second.send({ data: Buffer.from('second') });
    await second.close();
  },

  async fencing(s) {
    // What a producer sends that was thrown out ends its connection, with all that is on it.
    const alone = new Side(new Pulsar.Client({ serviceUrl: s.client.serviceUrl, log: () => {} }), s.name);
    const fenced = await alone.producer({ accessMode: 'Exclusive', sendTimeoutMs: 2000 });
    const consumer = await s.consumer();
    const producer = await s.producer({ accessMode: 'ExclusiveWithFencing' });
    await producer.send({ data: Buffer.from('new') });
    await assert.rejects(fenced.send({ data: Buffer.from('old') }));
    assert.deepEqual(await s.texts(consumer, 1), ['new']);
    await s.nothing(consumer);
    await alone.client.close();
  },

  async failover(s) {
    const options = { subscriptionType: 'Failover', receiverQueueSize: 10 };
    const consumers = [await s.consumer({ ...options, consumerName: 'a' }), await s.consumer({ ...options, consumerName: 'b' })];
    await pause(1500); // until the active one has been chosen
    await s.send(await s.producer(), numbers(20));
    const first = await Promise.race(consumers.map(async (one) => [one, await one.receive(TIMEOUT_MS)]));
    const active = first[0];
    const other = consumers.find((one) => one !== active);
    let last = first[1];
    for (let i = 1; i < 10; i += 1) last = await active.receive(TIMEOUT_MS);
    assert.equal(last.getData().toString(), '9');
    await active.acknowledgeCumulative(last);
    await active.close();
    // What waited for the other's first message is given it.
    const found = new Set();
    while (found.size < 9) found.add((await other.receive(TIMEOUT_MS)).getData().toString());
    for (const text of found) assert.ok(numbers(20).slice(10).includes(text));
  },

  async 'key shared'(s) {
    const found = [new Map(), new Map(), new Map()];
    const consumers = [];
    for (const i of found.keys()) {
      consumers.push(await s.consumer({ subscriptionType: 'KeyShared', consumerName: `c${i}` }));
    }
    const producer = await s.producer({ batchingEnabled: true, batchingType: 'KeyBasedBatching' });
    await s.send(producer, numbers(600), (i) => ({ partitionKey: `k${i % 30}` }));
    let count = 0;
    const consume = async (consumer, seen) => {
      while (count < 600) {
        const message = await consumer.receive(QUIET_MS).catch(() => null);
        if (!message) continue;
        count += 1;
        const key = message.getPartitionKey();
        seen.set(key, [...(seen.get(key) || []), Number(message.getData().toString())]);
        await consumer.acknowledge(message);
      }
    };
    await Promise.all(consumers.map((consumer, i) => consume(consumer, found[i])));
    assert.equal(found.reduce((sum, seen) => sum + seen.size, 0), 30, 'a key is with one consumer');
    for (const values of found.flatMap((seen) => [...seen.values()])) {
      assert.deepEqual(values, [...values].sort((one, other) => one - other));
    }
  },

  async 'batches in part'(s) {
    const options = { subscriptionType: 'Shared', batchIndexAckEnabled: true };
    const consumer = await s.consumer(options);
    const producer = await s.producer({ batchingEnabled: true, batchingMaxMessages: 10, batchingMaxPublishDelayMs: 1000 });
    await s.send(producer, numbers(10));
    for (let i = 0; i < 10; i += 1) {
      const message = await consumer.receive(TIMEOUT_MS);
      if (i % 2 === 0) await consumer.acknowledge(message);
    }
    await consumer.close();
    assert.deepEqual(await s.texts(await s.consumer(options), 5), ['1', '3', '5', '7', '9']);
  },

  async readers(s) {
    const producer = await s.producer({ batchingEnabled: true, batchingMaxMessages: 4 });
    const ids = await s.send(producer, numbers(20));
    const read = async (startMessageId, count) => {
      const reader = await s.client.createReader({ topic: s.topic(), startMessageId });
      const found = [];
      while (found.length < count && reader.hasNext()) found.push((await reader.readNext(TIMEOUT_MS)).getData().toString());
      assert.equal(reader.hasNext(), false);
      await reader.close();
      return found;
    };
    assert.deepEqual(await read(Pulsar.MessageId.earliest(), 20), numbers(20));
    assert.deepEqual(await read(Pulsar.MessageId.latest(), 20), []);
    assert.deepEqual(await read(ids[6], 20), numbers(20).slice(7));
  },

  async seeks(s) {
    const consumer = await s.consumer();
    const producer = await s.producer();
    const [, second] = await s.send(producer, ['0', '1', '2']);
    await pause(50);
    const middle = Date.now();
    await pause(50);
    await s.send(producer, ['3', '4']);
    assert.deepEqual(await s.texts(consumer, 5), numbers(5));
    await consumer.seek(second);
    assert.deepEqual(await s.texts(consumer, 3), ['2', '3', '4']); // the client passes over the message itself
    await consumer.seekTimestamp(middle);
    assert.deepEqual(await s.texts(consumer, 2), ['3', '4']);
    await consumer.seek(Pulsar.MessageId.latest());
    await s.nothing(consumer);
  },

  async 'patterns and many topics'(s) {
    for (const name of ['a', 'b', 'other']) await s.send(await s.producer({ topic: s.topic(name) }), [name]);
    const pattern = await s.consumer({
      topicsPattern: `persistent://public/default/${s.topic('[ab]')}`, subscriptionInitialPosition: 'Earliest',
    });
    assert.deepEqual((await s.texts(pattern, 2)).sort(), ['a', 'b']);
    const topics = ['a', 'other'].map((name) => s.topic(name));
    const many = await s.consumer({ topics, subscription: 'many', subscriptionInitialPosition: 'Earliest' });
    assert.deepEqual((await s.texts(many, 2)).sort(), ['a', 'other']);
  },

  async partitions(s) {
    const topic = 'node-partitioned';
    assert.equal((await s.client.getPartitionsForTopic(topic)).length, 4);
    const consumer = await s.consumer({ topic });
    const producer = await s.producer({ topic, messageRoutingMode: 'RoundRobinDistribution' });
    await s.send(producer, numbers(100));
    const found = await s.messages(consumer, 100);
    assert.deepEqual(found.map((one) => one.getData().toString()).sort(), numbers(100).sort());
    assert.equal(new Set(found.map((one) => one.getTopicName())).size, 4);
    const routed = await s.producer({ topic, messageRoutingMode: 'CustomPartition', messageRouter: () => 2 });
    await s.send(routed, numbers(10));
    for (const message of await s.messages(consumer, 10)) assert.match(message.getTopicName(), /-partition-2$/);
  },

  async schemas(s) {
    const schema = (...fields) => ({
      schemaType: 'Avro', name: 'R', schema: JSON.stringify({ type: 'record', name: 'R', fields }),
    });
    const a = { name: 'a', type: 'int' };
    const b = { name: 'b', type: ['null', 'string'], default: null };
    await s.producer({ schema: schema(a) });
    await s.producer({ schema: schema(a, b) });
    await s.consumer({ schema: schema(a, b) });
    await assert.rejects(s.producer({ schema: schema({ name: 'c', type: 'string' }) }), /IncompatibleSchema/);
  },

  async delays(s) {
    const consumer = await s.consumer({ subscriptionType: 'Shared' });
    const producer = await s.producer();
    await producer.send({ data: Buffer.from('later'), deliverAfter: 2500 });
    await producer.send({ data: Buffer.from('now') });
    const sent = Date.now();
    assert.deepEqual(await s.texts(consumer, 2), ['now', 'later']);
    assert.ok(Date.now() - sent >= 1400, 'it may come a second early');
  },

  async listeners(s) {
    const heard = [];
    let done;
    const all = new Promise((resolve) => { done = resolve; });
    await s.consumer({
      listener: async (message, consumer) => {
        heard.push(message.getData().toString());
        await consumer.acknowledge(message);
        if (heard.length === 50) done();
      },
    });
    await s.send(await s.producer(), numbers(50));
    await all;
    assert.deepEqual(heard, numbers(50));
  },

  async 'several at once'(s) {
    const consumer = await s.consumer({ batchReceivePolicy: { maxNumMessages: 10, timeoutMs: 200 } });
    await s.send(await s.producer(), numbers(25));
    const found = [];
    while (found.length < 25) {
      const some = await consumer.batchReceive();
      assert.ok(some.length <= 10);
      for (const message of some) {
        found.push(message.getData().toString());
        await consumer.acknowledge(message);
      }
    }
    assert.deepEqual(found, numbers(25));
  },
};

async function main(serviceUrl) {
  const client = new Pulsar.Client({ serviceUrl, operationTimeoutSeconds: 30, log: () => {} });
  client.serviceUrl = serviceUrl;
  const limit = (work) => {
    let timer;
    const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error('it did not end')), 4 * TIMEOUT_MS); });
    return Promise.race([work, late]).finally(() => clearTimeout(timer));
  };
  const ran = await Promise.all(Object.entries(scenarios).map(async ([name, does]) => {
    try {
      await limit(does(new Side(client, name)));
      console.log(`ok ${name}`);
      return true;
    } catch (error) {
      console.log(`failed ${name}: ${(error.stack || String(error)).split('\n').slice(0, 4).join(' ')}`);
      return false;
    }
  }));
  await client.close();
  process.exit(ran.every(Boolean) ? 0 : 1);
}

main(process.argv[2]);
