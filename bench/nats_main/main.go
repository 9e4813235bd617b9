// One NATS JetStream server, one producer and a number of receivers with durable consumers and acknowledgements, all in
// this process. Prints deliveries a second, from the first publish to the last acknowledgement.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func main() {
	receivers := flag.Int("receivers", 10, "receivers, each of which takes everything")
	count := flag.Int("count", 20000, "notifications")
	size := flag.Int("size", 200, "bytes of each")
	dir := flag.String("dir", "", "folder of the stream")
	durable := flag.Bool("durable", false, "what is acknowledged to the producer survives a power cut")
	flag.Parse()
	if err := run(*receivers, *count, *size, *dir, *durable); err != nil {
		log.Fatal(err)
	}
}

func run(receivers, count, size int, dir string, durable bool) error {
	running, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, SyncAlways: durable})
	if err != nil {
		return err
	}
	go running.Start()
	defer running.Shutdown()
	if !running.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the server is not ready")
	}
	producer, err := stream(running.ClientURL(), "bench")
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for receiver := 0; receiver < receivers; receiver++ {
		taking, err := stream(running.ClientURL(), "")
		if err != nil {
			return err
		}
		taken := 0
		done.Add(1)
		_, err = taking.Subscribe("bench", func(message *nats.Msg) {
			message.Ack()
			if taken++; taken == count {
				done.Done()
			}
		}, nats.Durable(fmt.Sprintf("r%d", receiver)), nats.ManualAck(), nats.AckExplicit(), nats.MaxAckPending(4000))
		if err != nil {
			return err
		}
	}
	body := make([]byte, size)
	began := time.Now()
	for sent := 0; sent < count; sent++ {
		if _, err := producer.PublishAsync("bench", body, nats.StallWait(time.Minute)); err != nil {
			return err
		}
	}
	<-producer.PublishAsyncComplete()
	done.Wait()
	fmt.Fprintf(os.Stdout, "%.0f\n", float64(receivers*count)/time.Since(began).Seconds())
	return nil
}

func stream(url, name string) (nats.JetStreamContext, error) {
	connection, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	context, err := connection.JetStream(nats.PublishAsyncMaxPending(4000))
	if err != nil || name == "" {
		return context, err
	}
	_, err = context.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{name}, Storage: nats.FileStorage})
	return context, err
}
