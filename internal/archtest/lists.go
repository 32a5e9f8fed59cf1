package archtest

// capable lists the packages whose exported interfaces are found with capability.As and never with
// a type assertion, and single interfaces of other packages. Interfaces of task have another
// purpose, such as values of a context.
var capable = []string{"broker", "resultstore", "events", "schedule", "limit", "settings", "control", "jobs/jobstore", "deferral", "outbox", "task.BatchSubmitter"}

// testingOnly lists the packages outside of _test.go files that may import testing. No program may.
var testingOnly = []string{"@suites", "celery/internal/python", "internal/sqlconn/sqltest", "internal/suite", "internal/testserver", "internal/testwait"}

// shared lists the package variables that may change, each with the reason. Keep it short.
var shared = map[string]string{
	"internal/testserver.shared": "the tests of one binary share one server, since a start costs seconds",
	"open.registered":            "which schemes are imported, as database/sql knows its drivers; nothing else is global",
}

// initializers lists the packages that may have an init function. It must only call open.Register.
var initializers = []string{"@drivers"}

// Limits of the number of lines outside of tests. A suite may have more than maxPackageLines.
const (
	maxLines        = 500 // of a file
	maxPackageLines = 6000
)
