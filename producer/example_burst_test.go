package producer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A page is saved three times. It is indexed once, with the last text.
func ExampleProducer_Submit_debounce() {
	index := task.New[string, string]("page.index")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return index.Handle(r, func(_ context.Context, text string) (string, error) { return "indexed " + text, nil })
	})

	ctx := context.Background()
	var all []*task.Future[string]
	for _, text := range []string{"a draft", "a better draft", "the text"} {
		f, err := index.Submit(ctx, s, text, task.WithDebounce("page 7", 200*time.Millisecond, time.Minute))
		if err != nil {
			panic(err)
		}
		all = append(all, f)
	}
	for _, f := range all {
		fmt.Println(f.Get(ctx))
	}
	// Output:
	// indexed the text <nil>
	// indexed the text <nil>
	// indexed the text <nil>
}

// An account is loaded by one task at a time. While the first one runs, two further submissions
// become one task, with the newest arguments.
func ExampleProducer_Submit_latest() {
	load := task.New[string, string]("account.load")
	started, free := make(chan struct{}, 3), make(chan struct{})

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return load.Handle(r, func(_ context.Context, version string) (string, error) {
			started <- struct{}{}
			<-free
			return "loaded " + version, nil
		})
	})

	ctx := context.Background()
	submit := func(version string) *task.Future[string] {
		f, err := load.Submit(ctx, s, version, task.WithLatest("account 42"))
		if err != nil {
			panic(err)
		}
		return f
	}
	first := submit("version 1")
	<-started
	second, third := submit("version 2"), submit("version 3")
	fmt.Println("one task waits:", second.ID() == third.ID())
	close(free)
	fmt.Println(first.Get(ctx))
	fmt.Println(second.Get(ctx))
	// Output:
	// one task waits: true
	// loaded version 1 <nil>
	// loaded version 3 <nil>
}
