// Package archtest keeps the house in order: its tests check who imports whom, which third-party modules reach which
// packages, and the rules of style that a compiler does not know. The rules stand in rules.go as tables; DESIGN.md tells
// why they are so, and .golangci.yml repeats those that a linter can show in an editor.
//
// A failure names the package or the line and the rule it breaks. A package that no rule knows is a failure too: give it
// a row.
package archtest
