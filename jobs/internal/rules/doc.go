// Package rules decides what one job may become. Its functions depend on the record, the time and
// their arguments. They read and write nothing else.
package rules
