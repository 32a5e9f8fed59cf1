package task_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Workflows are composed by type: a chain whose types do not fit does not compile. Each step gets
// the result of the step before it. The messages carry the steps that follow.
func ExampleChain() {
	parse := task.New[string, int]("parse")
	double := task.New[int, int]("double")
	say := task.New[int, string]("say")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			parse.Handle(r, func(_ context.Context, s string) (int, error) { return len(s), nil }),
			double.Handle(r, func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
			say.Handle(r, func(_ context.Context, n int) (string, error) { return fmt.Sprint("twice is ", n), nil }),
		)
	})

	ctx := context.Background()
	whole, err := task.Chain3(parse, double, say).Submit(ctx, s, "four")
	if err != nil {
		panic(err)
	}
	fmt.Println(whole.Get(ctx))
	fmt.Println(task.FutureOf[int](whole.Steps()[0]).Get(ctx)) // each step has a future, too
	// Output:
	// twice is 8 <nil>
	// 4 <nil>
}

// A group runs its members in parallel. The task that follows it, the callback of a chord, gets
// their results in order.
func ExampleChord() {
	fetch := task.New[string, int]("fetch")
	sum := task.New[[]int, int]("sum")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			fetch.Handle(r, func(_ context.Context, url string) (int, error) { return len(url), nil }),
			sum.Handle(r, func(_ context.Context, sizes []int) (int, error) {
				total := 0
				for _, n := range sizes {
					total += n
				}
				return total, nil
			}),
		)
	})

	ctx := context.Background()
	fixed, err := task.Chord(task.Group(fetch.Bound("a"), fetch.Bound("bb")), sum).Submit(ctx, s, task.None{})
	if err != nil {
		panic(err)
	}
	fmt.Println(fixed.Get(ctx))

	mapped, err := task.Chord(task.Map(fetch), sum).Submit(ctx, s, []string{"a", "bb", "ccc"})
	if err != nil {
		panic(err)
	}
	fmt.Println(mapped.Get(ctx))
	// Output:
	// 3 <nil>
	// 6 <nil>
}

// The policy of a group says how it ends if members fail.
func ExampleFan() {
	odd := task.New[int, int]("odd")
	list := task.New[[]int, []int]("list")
	report := task.New[[]task.Settled[int], []string]("report")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			odd.Handle(r, func(_ context.Context, n int) (int, error) {
				if n%2 == 0 {
					return 0, fmt.Errorf("%d is even", n)
				}
				return n, nil
			}),
			list.Handle(r, func(_ context.Context, ns []int) ([]int, error) { return ns, nil }),
			report.Handle(r, func(_ context.Context, ends []task.Settled[int]) ([]string, error) {
				lines := make([]string, len(ends))
				for i, e := range ends {
					if lines[i] = fmt.Sprint(e.Value); e.Failure != nil {
						lines[i] = e.Failure.Message
					}
				}
				return lines, nil
			}),
		)
	})

	ctx := context.Background()
	inputs := []int{1, 2, 3}
	each := task.Map(odd)
	failFast, err := task.Chain(each, list).Submit(ctx, s, inputs)
	if err != nil {
		panic(err)
	}
	fmt.Println(failFast.Get(ctx))
	ignoring, err := task.Chain(each.IgnoreFailures(), list).Submit(ctx, s, inputs)
	if err != nil {
		panic(err)
	}
	fmt.Println(ignoring.Get(ctx))
	collecting, err := task.Chain(each.Collect(), report).Submit(ctx, s, inputs)
	if err != nil {
		panic(err)
	}
	fmt.Println(collecting.Get(ctx))
	// Output:
	// [] step odd: 2 is even
	// [1 3] <nil>
	// [1 2 is even 3] <nil>
}

// A failed step stops the chain, and its error task gets the failure.
func ExampleOnError() {
	charge := task.New[int, string]("charge")
	ship := task.New[string, string]("ship")
	alarm := task.New[task.Failure, string]("alarm")
	alarms := make(chan string, 1)

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			charge.Handle(r, func(context.Context, int) (string, error) { return "", errors.New("the card is not valid") }),
			ship.Handle(r, func(_ context.Context, receipt string) (string, error) { return receipt, nil }),
			alarm.Handle(r, func(_ context.Context, f task.Failure) (string, error) { alarms <- f.Message; return "", nil }),
		)
	})

	ctx := context.Background()
	order, err := task.OnError(task.Chain(charge, ship), alarm).Submit(ctx, s, 42)
	if err != nil {
		panic(err)
	}
	_, err = order.Get(ctx) // the future of ship, which never runs
	fmt.Println(err)
	fmt.Println("alarm:", <-alarms)
	// Output:
	// step charge: the card is not valid
	// alarm: the card is not valid
}

// Arguments that do not come from the step before are fixed when the steps are composed.
func ExampleInto() {
	type mail struct {
		To    string
		Count int
	}
	count := task.New[string, int]("count")
	send := task.New[mail, string]("send")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			count.Handle(r, func(_ context.Context, s string) (int, error) { return len(s), nil }),
			send.Handle(r, func(_ context.Context, m mail) (string, error) { return fmt.Sprintf("%d to %s", m.Count, m.To), nil }),
		)
	})

	ctx := context.Background()
	counted, err := task.Chain(count, task.Into[int](send, "Count", mail{To: "ann"})).Submit(ctx, s, "seven77")
	if err != nil {
		panic(err)
	}
	fmt.Println(counted.Get(ctx))
	fixed, err := task.Chain(count, task.Fixed[int](send, mail{To: "ben", Count: 1})).Submit(ctx, s, "whatever")
	if err != nil {
		panic(err)
	}
	fmt.Println(fixed.Get(ctx))
	// Output:
	// 7 to ann <nil>
	// 1 to ben <nil>
}

// Stream maps over inputs without holding all of them in memory on either side.
func ExampleStream() {
	// its results are gathered nevertheless
	square := task.New[int, int]("square", task.WithIgnoreResult(true))
	total := task.New[task.Members[int], int]("total")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return errors.Join(
			square.Handle(r, func(_ context.Context, n int) (int, error) { return n * n, nil }),
			total.Handle(r, func(ctx context.Context, m task.Members[int]) (int, error) {
				sum := 0
				for end, err := range m.All(ctx) { // read in pages
					if err != nil {
						return 0, err
					}
					sum += end.Value
				}
				return sum, nil
			}),
		)
	})

	ctx := context.Background()
	inputs := slices.Values([]int{1, 2, 3, 4})
	sum, err := task.Stream(ctx, s, inputs, square, total)
	if err != nil {
		panic(err)
	}
	fmt.Println(sum.Get(ctx))
	// Output: 30 <nil>
}
