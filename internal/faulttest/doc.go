// Package faulttest holds tests in which real processes meet real faults: producers and consumers (examples/soak) and
// servers of their own are killed, frozen, stopped and cut off, and the ledger that the survivors kept must obey the rules
// of internal/ledger. Most tests run over each engine that there is; engine_test.go lists them. It has test files only.
package faulttest
