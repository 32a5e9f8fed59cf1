// Package taskio holds code that the Listener of a schedule and the Runner of jobs share: how they
// submit tasks, and how they write and read JSON.
package taskio
