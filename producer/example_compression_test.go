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
)

// Large arguments and results are compressed where both sides have the compressor. Here a message holds at most 4 KiB, and the
// text of 28 KB fits; for one call, compression is turned off.
func ExampleConfig_compression() {
	zstd, err := compress.NewZstd()
	must(err)
	c := serializer.Compression{Compressors: []serializer.Compressor{zstd, compress.S2{}}, Use: compress.NameZstd, MaxRatio: 1000}
	p, worker, run := inMemory(producer.Config{Wire: serializer.Wire{Compression: c, MaxBody: 4 << 10}}, consumer.Config{Wire: serializer.Wire{Compression: c}})
	count := task.New[string, int]("words.count")
	must(count.Handle(worker, func(_ context.Context, s string) (int, error) { return len(strings.Fields(s)), nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	text := strings.Repeat("the same words, again and again. ", 850)
	f, err := count.Submit(ctx, p, text)
	must(err)
	fmt.Println(f.Get(ctx))
	_, err = count.Submit(ctx, p, text, task.WithCompression(""))
	fmt.Println(errors.Is(err, broker.ErrTooLarge))
	// Output:
	// 5100 <nil>
	// true
}
