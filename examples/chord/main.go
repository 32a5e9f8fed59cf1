// Chord runs a task for each element of a list, and another one with all their results.
//
//	go run ./examples/chord
//
// It needs no server and prints:
//
//	words: 9
//	without the files that failed: 5
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

var (
	Count = task.New[string, int]("demo.count")
	Sum   = task.New[[]int, int]("demo.sum")
)

var files = map[string]string{"a.txt": "to be or not", "b.txt": "that", "c.txt": "is the question now"}

func count(_ context.Context, file string) (int, error) {
	text, ok := files[file]
	if !ok {
		return 0, task.Fail(errors.New("no such file: " + file))
	}
	return len(strings.Fields(text)), nil
}

func sum(_ context.Context, counts []int) (total int, err error) {
	for _, n := range counts {
		total += n
	}
	return total, nil
}

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	check(errors.Join(Count.Handle(c, count), Sum.Handle(c, sum)))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	words, err := task.Chord(task.Map(Count), Sum).Submit(ctx, p, []string{"a.txt", "b.txt", "c.txt"})
	check(err)
	total, err := words.Get(ctx)
	check(err)
	fmt.Println("words:", total)

	// A member that fails for good fails the group, unless the group says otherwise.
	words, err = task.Chord(task.Map(Count).IgnoreFailures(), Sum).Submit(ctx, p, []string{"a.txt", "b.txt", "d.txt"})
	check(err)
	total, err = words.Get(ctx)
	check(err)
	fmt.Println("without the files that failed:", total)

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
