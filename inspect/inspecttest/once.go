package inspecttest

import (
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/resultstore"
)

// oneCopy makes calls with one key at the same time and later, and fails the case unless they make
// one copy. It calls two implementations if these share a store of claims. count returns the number
// of copies, which is before at first.
func (w *world) oneCopy(before int, count func() int, run func(api inspect.API, key string) (inspect.Change, error)) {
	w.Helper()
	apis := []inspect.API{w.api(1), nil}
	if apis[1] = apis[0]; resultstore.ClaimerOf(nil, w.swarm.Results) != nil {
		apis[1] = w.api(1)
	}
	made := make([]inspect.Change, 8)
	errs := make([]error, len(made))
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() { made[i], errs[i] = run(apis[i%2], "form-1") })
	}
	all.Wait()
	last, err := run(apis[0], "form-1")
	first := 0
	for i, c := range append(made, last) {
		if i < len(errs) {
			err = errs[i]
		}
		w.no(err)
		if c.Copy == "" || c.Copy != last.Copy || c.Done != 1 {
			w.Errorf("call %d with a key: %+v, want the copy %s", i, c, last.Copy)
		}
		if !c.Repeated {
			first++
		}
	}
	if first != 1 || !last.Repeated {
		w.Errorf("%d calls with one key are the first, and the last one is repeated: %v", first, last.Repeated)
	}
	_, err = run(apis[0], strings.Repeat("k", 256))
	w.is(err, inspect.ErrInvalid)
	other, err := run(apis[1], "form-2")
	w.no(err)
	if other.Copy == last.Copy || other.Repeated {
		w.Errorf("another key: %+v after %+v", other, last)
	}
	w.until("there are two copies", func() bool { return count() >= before+2 })
	if n := count(); n != before+2 {
		w.Errorf("there are %d copies, want %d", n, before+2)
	}
}
