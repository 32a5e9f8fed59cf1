// Package browsertest tests the dashboard in a real browser: the flows of a person, the script of
// the pages, and their accessibility. The package has only test files.
// testdata/axe holds axe-core with its licence and its checksum.
//
// By default it runs the quick flows on SQLite. With SWARMIJI_THOROUGH=1 it runs all flows on three
// brokers, and checks each page in two widths and two colour schemes. "make browser" does this.
// "make screenshots" writes the pictures of docs/dashboard.
package browsertest
