package tasktest_test

import (
	"os"
	"strings"
	"testing"
)

// asTest runs the test that an Example function shows, because such a function has no *testing.T.
// go test only compiles these examples, and TestExamples runs them.
var asTest func(test func(t *testing.T))

func TestExamples(t *testing.T) {
	examples := map[string]func(){
		"Run": ExampleRun, "Work": ExampleWork, "Start": ExampleSwarm_Start, "Producer": ExampleSwarm_Producer, "Drain": ExampleSwarm_Drain,
		"DrainAll": ExampleSwarm_DrainAll, "Advance": ExampleSwarm_Advance, "Listen": ExampleSwarm_Listen, "Started": ExampleSwarm_Started,
		"RequireSubmitted": ExampleRequireSubmitted, "Like": ExampleLike, "RequireNotSubmitted": ExampleRequireNotSubmitted,
		"Submitted": ExampleSubmitted, "CrashAt": ExampleConsumer_CrashAt, "Crash": ExampleCrash, "Consumer.Crash": ExampleConsumer_Crash,
	}
	file, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(file), "\n\tasTest("); n != len(examples) {
		t.Errorf("%d examples are tests, and %d are run", n, len(examples))
	}
	for name, example := range examples {
		t.Run(name, func(t *testing.T) {
			asTest = func(test func(t *testing.T)) { test(t) }
			example()
		})
	}
}
