// Package rules says what may become of one job: functions of its record, of the time and of what
// was asked for. They read and write nothing else.
package rules
