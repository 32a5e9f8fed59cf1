// Package browsertest tests the dashboard in a real browser: what a person sees and does, what the
// script does, whether the pages are accessible, and whether they are fast with much data. The
// package has only test files. testdata/axe has axe-core with its licence and its checksum.
//
// By default it runs twelve flows on SQLite. With SWARMIJI_THOROUGH=1 it runs all flows on three
// brokers, and checks each page in two widths and two colour schemes. "make browser" does this and
// measures under load. "make screenshots" writes the pictures of docs/dashboard.
package browsertest
