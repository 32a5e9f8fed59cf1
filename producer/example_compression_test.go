package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Large arguments and results are compressed if both sides have the compressor. Here a message
// holds at most 4 KiB, and a text of 28 KB fits. One call turns compression off.
func ExampleConfig_compression() {
	zstd, err := compress.NewZstd()
	if err != nil {
		panic(err)
	}
	c := serializer.Compression{Compressors: []serializer.Compressor{zstd, compress.S2{}}, Use: compress.NameZstd, MaxRatio: 1000}
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Wire: serializer.Wire{Compression: c, MaxBody: 4 << 10}})
	count := task.New[string, int]("words.count")

	s.Start(consumer.Config{Wire: serializer.Wire{Compression: c}}, func(r task.Registrar) error {
		return count.Handle(r, func(_ context.Context, s string) (int, error) { return len(strings.Fields(s)), nil })
	})

	ctx := context.Background()
	text := strings.Repeat("the same words, again and again. ", 850)
	f, err := count.Submit(ctx, p, text)
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Get(ctx))
	_, err = count.Submit(ctx, p, text, task.WithCompression(""))
	fmt.Println(errors.Is(err, broker.ErrTooLarge))
	// Output:
	// 5100 <nil>
	// true
}
