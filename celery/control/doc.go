// Package control connects Swarmiji to Celery's events and remote control.
//
// [Bus] is an event bus on Celery's exchange of events. Celery's monitors show the events of Go
// consumers and producers, and listeners in Go receive the events of Python workers. [Service]
// executes the commands of "celery inspect" and "celery control" on a consumer.
//
// Both use a [Transport], such as that of package amqpcontrol. Commands of Celery are not signed: a
// client with access to the message broker can send them to all workers. [ServiceConfig].Allow
// limits them.
package control
