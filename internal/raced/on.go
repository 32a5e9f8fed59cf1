//go:build race

package raced

// Enabled reports whether this program was built with the race detector.
const Enabled = true
