package suite

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/captable"
)

// About says what a run is about and where it is reported.
type About struct {
	// File is the path of the adapter's report, below docs/capabilities of this module. A whole run, in which no case was
	// left out by -run or -short and none failed, is compared with it, or writes it if SWARMIJI_UPDATE is 1. "": none.
	File string
	// Port is the name of the port.
	Port string
	// Promises are what the adapter promises.
	Promises []captable.Promise
}

// Promises are the fields of a struct, in their order: bool, int or time.Duration, of which zero is no promise.
func Promises(of any) []captable.Promise {
	v := reflect.ValueOf(of)
	ps := make([]captable.Promise, v.NumField())
	for i := range ps {
		ps[i] = captable.Promise{Name: v.Type().Field(i).Name, Value: captable.No}
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		switch x := f.Interface().(type) {
		case bool:
			ps[i].Value = captable.Yes
		case int:
			ps[i].Value = strconv.Itoa(x)
		case time.Duration:
			ps[i].Value = x.String()
		default:
			panic(fmt.Sprintf("suite: the promise %s is a %T", ps[i].Name, x))
		}
	}
	return ps
}

// Promise is one that is made or not.
func Promise(name string, made bool) captable.Promise {
	if made {
		return captable.Promise{Name: name, Value: captable.Yes}
	}
	return captable.Promise{Name: name, Value: captable.No}
}

// recorder collects what a run sees.
type recorder struct {
	cases, seen int
	met         bool
	about       About
	areas       []captable.Area
}

// meet is told of each harness; the first one counts.
func (r *recorder) meet(about func() About) {
	if !r.met {
		r.met, r.about = true, about()
	}
}

// add notes that a case has passed, or why it was not run. Cases of one area stand together.
func (r *recorder) add(area, name, reason string) {
	r.seen++
	i := slices.IndexFunc(r.areas, func(a captable.Area) bool { return a.Name == area })
	if i < 0 {
		i = len(r.areas)
		r.areas = append(r.areas, captable.Area{Name: area})
	}
	a := &r.areas[i]
	if reason == "" {
		a.Passed = true
	} else {
		a.Skipped = append(a.Skipped, captable.Skip{Case: name, Reason: reason})
	}
}

// check compares a whole run with what is committed.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	if r.seen < r.cases || r.about.File == "" || testing.Short() {
		return
	}
	report := captable.Report{Port: r.about.Port, Promises: r.about.Promises, Areas: r.areas}
	if err := report.Check(r.about.File, os.Getenv(captable.Update) == "1"); err != nil {
		t.Error(err)
	}
}
