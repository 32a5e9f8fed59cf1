package jobs

import "github.com/swarmiji/swarmiji/jobs/jobstore"

// What stores keep and answer is in package jobstore, which adapters import. Programs find it here.
type (
	// ID names a job. See jobstore.ID.
	ID = jobstore.ID
	// State says where a job stands. See jobstore.State.
	State = jobstore.State
	// Job is one record. See jobstore.Job.
	Job = jobstore.Job
	// Phase is how far a job of state RUNNING is whose answer comes from outside. See jobstore.Phase.
	Phase = jobstore.Phase
	// Store is the port to a database that keeps jobs. See jobstore.Store.
	Store = jobstore.Store
	// Coming is what a store tells of jobs that become due. See jobstore.Coming.
	Coming = jobstore.Coming
	// Row is a job as a store keeps it. See jobstore.Row.
	Row = jobstore.Row
	// Line asks for jobs of a queue that are due. See jobstore.Line.
	Line = jobstore.Line
	// Order is the order in which a queue starts its jobs. See jobstore.Order.
	Order = jobstore.Order
	// Due asks for jobs that are due. See jobstore.Due.
	Due = jobstore.Due
	// Selector says which jobs a worker asks for. See jobstore.Selector.
	Selector = jobstore.Selector
	// FieldError says which part of a request is bad. See jobstore.FieldError.
	FieldError = jobstore.FieldError
	// KeyTakenError says which job has a key. See jobstore.KeyTakenError.
	KeyTakenError = jobstore.KeyTakenError
	// Handout is a job that was handed out. See jobstore.Handout.
	Handout = jobstore.Handout
	// Before is what a job was before it was handed out. See jobstore.Before.
	Before = jobstore.Before
	// Child is a child that is over. See jobstore.Child.
	Child = jobstore.Child
)

// States, phases, orders and limits, as package jobstore has them.
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
