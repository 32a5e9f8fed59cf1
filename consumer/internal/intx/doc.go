// Package intx settles a task in a transaction of its handler. It has the progress of such a task
// ([State]), the check that all parts are in one database ([Databases]), and the writes ([Writer]).
// The consumer decides about the values.
package intx
