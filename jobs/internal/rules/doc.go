// Package rules contains the rules that concern a single job. Its functions depend only on their
// arguments and change only the job that they get.
package rules
