package jobs

import "github.com/swarmiji/swarmiji/jobs/jobstore"

// The records are those of package jobstore, which has their documentation.
type (
	Row           = jobstore.Row
	ID            = jobstore.ID
	State         = jobstore.State
	Job           = jobstore.Job
	Phase         = jobstore.Phase
	Store         = jobstore.Store
	Coming        = jobstore.Coming
	Finder        = jobstore.Finder
	Page          = jobstore.Page
	Line          = jobstore.Line
	Order         = jobstore.Order
	Due           = jobstore.Due
	Selector      = jobstore.Selector
	FieldError    = jobstore.FieldError
	KeyTakenError = jobstore.KeyTakenError
	Handout       = jobstore.Handout
	Before        = jobstore.Before
	Child         = jobstore.Child
)

// See package jobstore.
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

// The classes of errors, see package jobstore.
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
