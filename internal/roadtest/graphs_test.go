package roadtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// The tasks that random workflows are made of. Each takes and gives a number, so that any of them can follow any other.
var (
	graphMix    = task.New[int, int]("graph.mix")
	graphPicky  = task.New[int, int]("graph.picky") // fails for every seventh number
	graphSpread = task.New[int, []int]("graph.spread")
	graphFold   = task.New[[]int, int]("graph.fold")
	graphJudge  = task.New[[]task.Settled[int], int]("graph.judge")
)

const graphRange = 9973

func mix(n int) int { return (n*31 + 7) % graphRange }

func picky(n int) (int, error) {
	if n%7 == 0 {
		return 0, fmt.Errorf("%d is a seventh", n)
	}
	return (n*17 + 3) % graphRange, nil
}

// spread gives 0 to 3 numbers.
func spread(n int) []int {
	list := make([]int, n%4)
	for i := range list {
		list[i] = (n + 1000*i) % graphRange
	}
	return list
}

// fold depends on the order of its list.
func fold(list []int) int {
	n := 1
	for _, v := range list {
		n = (n*131 + v + 1) % graphRange
	}
	return n
}

func judge(list []task.Settled[int]) int {
	n := 5
	for _, s := range list {
		v := s.Value
		if s.Failure != nil {
			v = 4242
		}
		n = (n*137 + v + 1) % graphRange
	}
	return n
}

// graph is a workflow and what it has to come to.
type graph struct {
	part task.Part[int, int]
	eval func(n int, e *expected) (int, bool) // false: it failed
}

// expected is what is known of a graph's run before it runs.
type expected struct {
	steps    int      // tasks that run when nothing fails for good
	failures []string // of those, one is the workflow's error if it fails
	any      bool     // something fails
}

// randomGraph draws a workflow that nests up to depth.
func randomGraph(r *rand.Rand, depth int) graph {
	if depth == 0 {
		return leaf(r)
	}
	switch r.IntN(7) {
	case 0:
		return leaf(r)
	case 1, 2:
		return chainOf(randomGraph(r, depth-1), randomGraph(r, depth-1))
	case 3, 4:
		return chordOf(r, depth)
	default:
		return mapOf(r, randomGraph(r, depth-1))
	}
}

func leaf(r *rand.Rand) graph {
	if r.IntN(8) > 0 {
		return graph{graphMix, func(n int, e *expected) (int, bool) {
			e.steps++
			return mix(n), true
		}}
	}
	return graph{graphPicky, func(n int, e *expected) (int, bool) {
		e.steps++
		v, err := picky(n)
		if err != nil {
			e.failures, e.any = append(e.failures, err.Error()), true
		}
		return v, err == nil
	}}
}

func chainOf(a, b graph) graph {
	return graph{task.Chain(a.part, b.part), func(n int, e *expected) (int, bool) {
		v, ok := a.eval(n, e)
		if !ok {
			return 0, false
		}
		return b.eval(v, e)
	}}
}

// ending finishes a group: by one of the policies, and with a callback that depends on the order.
func ending[A any](r *rand.Rand, f task.Fan[A, int]) (task.Part[A, int], func([]end, *expected) (int, bool)) {
	switch r.IntN(4) {
	case 0:
		return task.Chord(f.Collect(), graphJudge), func(ends []end, e *expected) (int, bool) {
			e.steps++
			list := make([]task.Settled[int], len(ends))
			for i, x := range ends {
				list[i].Value = x.value
				if !x.ok {
					list[i].Failure = &task.Failure{}
				}
			}
			return judge(list), true
		}
	case 1:
		return task.Chord(f.IgnoreFailures(), graphFold), func(ends []end, e *expected) (int, bool) {
			e.steps++
			return fold(values(ends)), true
		}
	}
	return task.Chord(f, graphFold), func(ends []end, e *expected) (int, bool) {
		if slices.ContainsFunc(ends, func(x end) bool { return !x.ok }) {
			return 0, false
		}
		e.steps++
		return fold(values(ends)), true
	}
}

// end is what became of a member.
type end struct {
	value int
	ok    bool
}

func values(ends []end) []int {
	var list []int
	for _, x := range ends {
		if x.ok {
			list = append(list, x.value)
		}
	}
	return list
}

func chordOf(r *rand.Rand, depth int) graph {
	members := make([]graph, 1+r.IntN(3))
	parts := make([]task.Part[int, int], len(members))
	for i := range members {
		members[i] = randomGraph(r, depth-1)
		parts[i] = members[i].part
	}
	part, finish := ending(r, task.Group(parts...))
	return graph{part, func(n int, e *expected) (int, bool) {
		ends := make([]end, len(members))
		for i, m := range members {
			ends[i].value, ends[i].ok = m.eval(n, e)
		}
		return finish(ends, e)
	}}
}

func mapOf(r *rand.Rand, each graph) graph {
	part, finish := ending(r, task.Map(each.part))
	return graph{task.Chain(graphSpread, part), func(n int, e *expected) (int, bool) {
		e.steps++
		list := spread(n)
		ends := make([]end, len(list))
		for i, v := range list {
			ends[i].value, ends[i].ok = each.eval(v, e)
		}
		return finish(ends, e)
	}}
}

// handleGraphs registers the tasks; started is told of each run.
func handleGraphs(r task.Registrar, started func(*task.Request)) error {
	note := func(ctx context.Context) {
		if req, ok := task.FromContext(ctx); ok {
			started(req)
		}
	}
	return firstError(
		graphMix.Handle(r, func(ctx context.Context, n int) (int, error) { note(ctx); return mix(n), nil }),
		graphPicky.Handle(r, func(ctx context.Context, n int) (int, error) { note(ctx); return picky(n) }),
		graphSpread.Handle(r, func(ctx context.Context, n int) ([]int, error) { note(ctx); return spread(n), nil }),
		graphFold.Handle(r, func(ctx context.Context, list []int) (int, error) { note(ctx); return fold(list), nil }),
		graphJudge.Handle(r, func(ctx context.Context, list []task.Settled[int]) (int, error) { note(ctx); return judge(list), nil }),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
