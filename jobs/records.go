package jobs

import "github.com/swarmiji/swarmiji/jobs/jobstore"

// The records and the port of package jobstore, under the names that programs use.
type (
	// ID identifies a job. See jobstore.ID.
	ID = jobstore.ID
	// State is the state of a job. See jobstore.State.
	State = jobstore.State
	// Job is the part of a record that programs read. See jobstore.Job.
	Job = jobstore.Job
	// Phase is the phase of a RUNNING job whose answer comes from outside. See jobstore.Phase.
	Phase = jobstore.Phase
	// Store is the port to a database of jobs. See jobstore.Store.
	Store = jobstore.Store
	// Coming is the result of Store.Coming. See jobstore.Coming.
	Coming = jobstore.Coming
	// Row is a job with the fields that only stores and workers use. See jobstore.Row.
	Row = jobstore.Row
	// Line selects due jobs of a queue. See jobstore.Line.
	Line = jobstore.Line
	// Order is the order in which a queue starts its jobs. See jobstore.Order.
	Order = jobstore.Order
	// Due selects due jobs. See jobstore.Due.
	Due = jobstore.Due
	// Selector selects jobs for a worker. See jobstore.Selector.
	Selector = jobstore.Selector
	// FieldError names the invalid field of a request. See jobstore.FieldError.
	FieldError = jobstore.FieldError
	// KeyTakenError names the job or the task that already has a key. See jobstore.KeyTakenError.
	KeyTakenError = jobstore.KeyTakenError
	// Handout is a claimed job. See jobstore.Handout.
	Handout = jobstore.Handout
	// Before holds the state and NextRun that a job had before its claim. See jobstore.Before.
	Before = jobstore.Before
	// Child is a child that is FINISHED or CANCELLED. See jobstore.Child.
	Child = jobstore.Child
)

// States, phases, orders and limits of package jobstore.
const (
	Queued          = jobstore.Queued
	RunQueued       = jobstore.RunQueued
	Running         = jobstore.Running
	Paused          = jobstore.Paused
	Waiting         = jobstore.Waiting
	Finished        = jobstore.Finished
	Failed          = jobstore.Failed
	Cancelled       = jobstore.Cancelled
	MaxName         = jobstore.MaxName
	MaxData         = jobstore.MaxData
	MaxReason       = jobstore.MaxReason
	MaxKey          = jobstore.MaxKey
	MaxWeight       = jobstore.MaxWeight
	MaxPriority     = jobstore.MaxPriority
	DefaultPriority = jobstore.DefaultPriority
	Awaiting        = jobstore.Awaiting
	Answered        = jobstore.Answered
	TimeFirst       = jobstore.TimeFirst
	PriorityFirst   = jobstore.PriorityFirst
)

// The errors of package jobstore.
var (
	ErrNotFound        = jobstore.ErrNotFound
	ErrNoJob           = jobstore.ErrNoJob
	ErrBadJob          = jobstore.ErrBadJob
	ErrState           = jobstore.ErrState
	ErrStale           = jobstore.ErrStale
	ErrClosed          = jobstore.ErrClosed
	ErrUnavailable     = jobstore.ErrUnavailable
	ErrHeld            = jobstore.ErrHeld
	ErrUnsupported     = jobstore.ErrUnsupported
	ErrNotRunning      = jobstore.ErrNotRunning
	ErrParentNotPaused = jobstore.ErrParentNotPaused
	ErrIsRunning       = jobstore.ErrIsRunning
	ErrChildrenRunning = jobstore.ErrChildrenRunning
	ErrOutstanding     = jobstore.ErrOutstanding
	ErrParentState     = jobstore.ErrParentState
	ErrGrandchild      = jobstore.ErrGrandchild
	ErrMockDiffers     = jobstore.ErrMockDiffers
	ErrParentNotFound  = jobstore.ErrParentNotFound
	ErrOtherParent     = jobstore.ErrOtherParent
	ErrHasChildren     = jobstore.ErrHasChildren
	ErrKeyTaken        = jobstore.ErrKeyTaken
	ErrOver            = jobstore.ErrOver
	ErrAnswerThere     = jobstore.ErrAnswerThere
	ErrNoParent        = jobstore.ErrNoParent
)
