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

// About names the port and the adapter of a run, and the file of the run's report.
type About struct {
	// File is the path of the adapter's report, below docs/capabilities of this module. "": the run
	// has no report.
	//
	// A whole run is compared with the file, or writes it if SWARMIJI_UPDATE is 1. A run is whole if
	// no case failed or was left out by -run or -short.
	File string
	// Port is the name of the port.
	Port string
	// Promises holds the promises of the adapter.
	Promises []captable.Promise
}

// Promises returns the fields of a struct as promises, in their order. The fields are bool, int or
// time.Duration; a zero field is a promise that the adapter does not make.
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

// Promise returns a promise with the value yes if made is true, and no otherwise.
func Promise(name string, made bool) captable.Promise {
	if made {
		return captable.Promise{Name: name, Value: captable.Yes}
	}
	return captable.Promise{Name: name, Value: captable.No}
}

// recorder collects the outcome of each case of a run.
type recorder struct {
	cases, seen int
	met         bool
	about       About
	areas       []captable.Area
}

// meet stores the result of about on its first call. Later calls do nothing.
func (r *recorder) meet(about func() About) {
	if !r.met {
		r.met, r.about = true, about()
	}
}

// add records that a case has passed, or the reason why it was skipped. Cases of one area are
// grouped.
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

// check compares the report of a whole run with the committed file, or writes that file. It does
// nothing if cases are missing, in a -short run, and without a file.
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
