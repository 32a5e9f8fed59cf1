// Package raced tells tests whether they were built with the race detector. A program that a test
// builds in the same way shares the compiled packages of the test, and is watched too.
package raced
