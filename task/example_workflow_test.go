package task_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// Tasks are put together by their types: a chain that does not fit does not compile. Steps that follow each other get each
// other's results; what a consumer has to do next travels in the messages.
func ExampleChain() {
	parse := task.New[string, int]("parse")
	double := task.New[int, int]("double")
	say := task.New[int, string]("say")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		parse.Handle(c, func(_ context.Context, s string) (int, error) { return len(s), nil }),
		double.Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		say.Handle(c, func(_ context.Context, n int) (string, error) { return fmt.Sprint("twice is ", n), nil }),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	whole, err := task.Chain3(parse, double, say).Submit(ctx, p, "four")
	must(err)
	fmt.Println(whole.Get(ctx))
	fmt.Println(task.FutureOf[int](whole.Steps()[0]).Get(ctx)) // each step has a future, too
	// Output:
	// twice is 8 <nil>
	// 4 <nil>
}

// A group runs its members at a time; what follows it, a chord's callback, gets their results in order.
func ExampleChord() {
	fetch := task.New[string, int]("fetch")
	sum := task.New[[]int, int]("sum")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		fetch.Handle(c, func(_ context.Context, url string) (int, error) { return len(url), nil }),
		sum.Handle(c, func(_ context.Context, sizes []int) (int, error) {
			total := 0
			for _, n := range sizes {
				total += n
			}
			return total, nil
		}),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	fixed, err := task.Chord(task.Group(fetch.Bound("a"), fetch.Bound("bb")), sum).Submit(ctx, p, task.None{})
	must(err)
	fmt.Println(fixed.Get(ctx))

	mapped, err := task.Chord(task.Map(fetch), sum).Submit(ctx, p, []string{"a", "bb", "ccc"})
	must(err)
	fmt.Println(mapped.Get(ctx))
	// Output:
	// 3 <nil>
	// 6 <nil>
}

// What becomes of a group whose members fail is said by the group.
func ExampleFan() {
	odd := task.New[int, int]("odd")
	list := task.New[[]int, []int]("list")
	report := task.New[[]task.Settled[int], []string]("report")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		odd.Handle(c, func(_ context.Context, n int) (int, error) {
			if n%2 == 0 {
				return 0, fmt.Errorf("%d is even", n)
			}
			return n, nil
		}),
		list.Handle(c, func(_ context.Context, ns []int) ([]int, error) { return ns, nil }),
		report.Handle(c, func(_ context.Context, ends []task.Settled[int]) ([]string, error) {
			lines := make([]string, len(ends))
			for i, e := range ends {
				if lines[i] = fmt.Sprint(e.Value); e.Failure != nil {
					lines[i] = e.Failure.Message
				}
			}
			return lines, nil
		}),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	inputs := []int{1, 2, 3}
	each := task.Map(odd)
	failFast, err := task.Chain(each, list).Submit(ctx, p, inputs)
	must(err)
	fmt.Println(failFast.Get(ctx))
	ignoring, err := task.Chain(each.IgnoreFailures(), list).Submit(ctx, p, inputs)
	must(err)
	fmt.Println(ignoring.Get(ctx))
	collecting, err := task.Chain(each.Collect(), report).Submit(ctx, p, inputs)
	must(err)
	fmt.Println(collecting.Get(ctx))
	// Output:
	// [] step odd: 2 is even
	// [1 3] <nil>
	// [1 2 is even 3] <nil>
}

// A failed step stops the chain, and its error task is told why.
func ExampleOnError() {
	charge := task.New[int, string]("charge")
	ship := task.New[string, string]("ship")
	alarm := task.New[task.Failure, string]("alarm")
	alarms := make(chan string, 1)

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		charge.Handle(c, func(context.Context, int) (string, error) { return "", errors.New("the card is not valid") }),
		ship.Handle(c, func(_ context.Context, receipt string) (string, error) { return receipt, nil }),
		alarm.Handle(c, func(_ context.Context, f task.Failure) (string, error) { alarms <- f.Message; return "", nil }),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	order, err := task.OnError(task.Chain(charge, ship), alarm).Submit(ctx, p, 42)
	must(err)
	_, err = order.Get(ctx) // the future of ship, which never runs
	fmt.Println(err)
	fmt.Println("alarm:", <-alarms)
	// Output:
	// step charge: the card is not valid
	// alarm: the card is not valid
}

// Arguments that do not come from the step before are fixed when the steps are put together.
func ExampleInto() {
	type mail struct {
		To    string
		Count int
	}
	count := task.New[string, int]("count")
	send := task.New[mail, string]("send")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		count.Handle(c, func(_ context.Context, s string) (int, error) { return len(s), nil }),
		send.Handle(c, func(_ context.Context, m mail) (string, error) { return fmt.Sprintf("%d to %s", m.Count, m.To), nil }),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	counted, err := task.Chain(count, task.Into[int](send, "Count", mail{To: "ann"})).Submit(ctx, p, "seven77")
	must(err)
	fmt.Println(counted.Get(ctx))
	fixed, err := task.Chain(count, task.Fixed[int](send, mail{To: "ben", Count: 1})).Submit(ctx, p, "whatever")
	must(err)
	fmt.Println(fixed.Get(ctx))
	// Output:
	// 7 to ann <nil>
	// 1 to ben <nil>
}

// Stream maps over inputs of which neither side holds all at once.
func ExampleStream() {
	square := task.New[int, int]("square", task.WithIgnoreResult(true)) // results are gathered all the same
	total := task.New[task.Members[int], int]("total")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(errors.Join(
		square.Handle(c, func(_ context.Context, n int) (int, error) { return n * n, nil }),
		total.Handle(c, func(ctx context.Context, m task.Members[int]) (int, error) {
			sum := 0
			for end, err := range m.All(ctx) { // read in pages
				if err != nil {
					return 0, err
				}
				sum += end.Value
			}
			return sum, nil
		}),
	))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	inputs := slices.Values([]int{1, 2, 3, 4})
	sum, err := task.Stream(ctx, p, inputs, square, total)
	must(err)
	fmt.Println(sum.Get(ctx))
	// Output: 30 <nil>
}
