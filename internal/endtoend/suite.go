package endtoend

import (
	"strings"
	"testing"
)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	lacks := func(t *testing.T, has bool, what string) {
		if has {
			t.Skip(what)
		}
	}
	for _, c := range []struct {
		name   string
		queues bool // needs a broker in which tasks wait
		alike  bool // only producers and consumers decide its outcome
		fn     func(t *testing.T, open Open)
	}{
		// Promises: S2, S3, S26.
		{"TypedResult", false, false, testTypedResult},
		{"Wrapped", false, true, testWrapped},
		{"Failure", false, false, testFailure},
		{"BadArgs", false, true, testBadArgs},
		{"Panic", false, true, testPanic},
		{"Goexit", false, true, testGoexit},
		// Promises: S55.
		{"RequestInContext", false, true, testRequestInContext},
		// Promises: S12, S13, S23.
		{"MetadataPrecedence", false, true, testMetadataPrecedence},
		// Promises: S21.
		{"IgnoreResult", false, false, testIgnoreResult},
		{"SubmitAll", false, false, testSubmitAll},
		{"NamesAreChecked", false, true, testNamesAreChecked},
		{"TooLarge", false, true, testTooLarge},
		{"SendMiddleware", false, true, testSendMiddleware},
		{"NoResultStore", false, true, testNoResultStore},
		// Promises: S20, S23.
		{"TimeLimit", false, true, testTimeLimit},
		// Promises: S20.
		{"StuckHandlers", false, true, testStuckHandlers},
		{"StuckHoldsNothing", true, true, testStuckHoldsNothing},
		{"RateLimit", false, true, testRateLimit},
		{"ManyOnce", false, false, testManyOnce},
		// Promises: S25, S64, S66, S67.
		{"Successors", false, false, testSuccessors},
		// Promises: S14, S63.
		{"Chain", false, false, testChain},
		// Promises: S63.
		{"ChainFails", false, false, testChainFails},
		{"StepIsRetried", false, true, testStepIsRetried},
		{"StepArguments", false, true, testStepArguments},
		{"StepNumbers", false, true, testStepNumbers},
		// Promises: S14, S68.
		{"Group", false, false, testGroup},
		// Promises: S14.
		{"Chord", false, false, testChord},
		{"ChordPolicies", false, false, testChordPolicies},
		// Promises: S64.
		{"NestedWorkflow", false, false, testNestedWorkflow},
		{"Stream", false, false, testStream},
		{"ForgottenGroup", true, false, testForgottenGroup},
		{"MembersThatNeverRun", true, false, testMembersThatNeverRun},
		{"GroupsNeedAGatherer", false, false, testGroupsNeedAGatherer},
		// Promises: S27, S28, S29, S30, S31, S32, S33, S34, S37.
		{"Events", false, false, testEvents},
		{"ExpiredEvent", true, false, testExpiredEvent},
		{"Heartbeats", false, false, testHeartbeats},
		// Promises: S56.
		{"RetryByHand", false, false, testRetryByHand},
		// Promises: S16, S59.
		{"RetryLimit", false, true, testRetryLimit},
		// Promises: S17.
		{"RetryMiddleware", false, true, testRetryMiddleware},
		{"RetryPolicy", false, true, testRetryPolicy},
		// Promises: S58.
		{"RetryHandler", false, true, testRetryHandler},
		// Promises: S56.
		{"RetryQueue", false, false, testRetryQueue},
		{"RetryBudget", false, true, testRetryBudget},
		// Promises: S60.
		{"RetryOutlivesConsumer", true, false, testRetryOutlivesConsumer},
		// Promises: S71.
		{"Hooks", false, true, testHooks},
		// Promises: S72.
		{"HookVeto", false, true, testHookVeto},
		{"HookPanic", false, true, testHookPanic},
		{"Snooze", false, false, testSnooze},
		// Promises: S11, S15.
		{"UnknownTask", false, true, testUnknownTask},
		// Promises: S11.
		{"UnknownThenDeployed", true, false, testUnknownThenDeployed},
		// Promises: S24, S54.
		{"AtMostOnce", false, false, testAtMostOnce},
		// Promises: S9.
		{"RawBytes", false, true, testRawBytes},
		// Promises: S9, S22.
		{"RawContentTypes", true, true, testRawContentTypes},
		// Promises: S9.
		{"JSONByHand", false, true, testJSONByHand},
		{"RetryAtMaxBody", false, true, testRetryAtMaxBody},
		{"ResultTooLarge", false, true, testResultTooLarge},
		{"SameIDTwice", false, false, testSameIDTwice},
		{"Unique", false, false, testUnique},
		{"UniqueBatch", false, false, testUniqueBatch},
		{"UniqueOutcomes", false, false, testUniqueOutcomes},
		{"Debounce", false, false, testDebounce},
		{"Latest", false, false, testLatest},
		{"BurstRequeued", true, false, testBurstRequeued},
		{"BurstAtMostOnce", false, false, testBurstAtMostOnce},
		{"StopWaits", false, true, testStopWaits},
		{"StopForced", true, false, testStopForced},
		{"StopGivesBack", true, false, testStopGivesBack},
		{"Kill", true, false, testKill},
		// Promises: S51.
		{"Prefetch", true, false, testPrefetch},
		{"Reserved", true, false, testReserved},
		// Promises: S52.
		{"OneEach", true, false, testOneEach},
		// Promises: S51.
		{"FollowsWork", true, false, testFollowsWork},
		{"Fair", true, false, testFair},
		{"Bounds", true, false, testBounds},
		// Promises: S51.
		{"BusyHoldsNothing", true, false, testBusyHoldsNothing},
		{"Batches", true, false, testBatches},
		{"QueuedBeforeConsumer", true, false, testQueuedBeforeConsumer},
		{"Expired", true, false, testExpired},
		{"Delayed", true, false, testDelayed},
		{"WrongClock", true, false, testWrongClock},
		// Promises: S48.
		{"NoSuchQueue", true, false, testNoSuchQueue},
		{"Unreadable", true, false, testUnreadable},
		{"Poison", true, false, testPoison},
		{"OldSideQueue", true, false, testOldSideQueue},
		{"NoCrash", true, false, testNoCrash},
		{"EarlyBound", true, false, testEarlyBound},
		{"EarlyAckUnknown", true, false, testEarlyAckUnknown},
		{"EarlyRetryUnknown", true, false, testEarlyRetryUnknown},
		{"EarlyNotSettled", true, false, testEarlyNotSettled},
		{"EarlyHeldOnly", true, false, testEarlyHeldOnly},
		{"FailedIsKept", true, false, testFailedIsKept},
		{"Requeued", true, false, testRequeued},
		{"RequeuedAgain", true, false, testRequeuedAgain},
		{"RequeuedSealed", true, false, testRequeuedSealed},
		{"RequeueCrashes", true, false, testRequeueCrashes},
		{"OldLifeIsFenced", true, false, testOldLifeIsFenced},
		{"RequeueRefused", true, false, testRequeueRefused},
		{"RetriedGroup", true, false, testRetriedGroup},
		{"Progress", false, false, testProgress},
		{"Checkpoints", false, false, testCheckpoints},
		{"CheckpointsRequeued", true, false, testCheckpointsRequeued},
		{"CheckpointsSealed", false, true, testCheckpointsSealed},
		{"Waits", false, false, testWaits},
		{"WaitsSealed", false, true, testWaitsSealed},
		{"WaitRefused", true, false, testWaitRefused},
		{"WaitElsewhere", true, false, testWaitElsewhere},
		{"WaitSevered", true, false, testWaitSevered},
		{"RevokedWaits", true, false, testRevokedWaits},
		{"WorkflowTimeLimit", true, false, testWorkflowTimeLimit},
		{"SeverInMidTask", true, false, testSeverInMidTask},
		{"SeverKeepsTask", true, false, testSeverKeepsTask},
		{"ReplyTo", true, false, testReplyTo},
		{"ForeignHeaders", true, false, testForeignHeaders},
		{"Headers", false, false, testHeaders},
		{"ForgedCounts", true, false, testForgedCounts},
		{"Compressed", true, true, testCompressed},
		{"Sealed", false, true, testSealed},
		{"SealedWorkflow", false, true, testSealedWorkflow},
		{"KeyRotation", true, true, testKeyRotation},
		// Promises: S8.
		{"CompressedRoad", false, true, testCompressedRoad},
		{"PendingOfNobody", false, false, testPendingOfNobody},
		{"WorkflowIDs", false, false, testWorkflowIDs},
		{"StepHeaders", false, true, testStepHeaders},
		{"StepHeadersTooLarge", false, true, testStepHeadersTooLarge},
		{"FailedStep", false, true, testFailedStep},
		{"IgnoredByConsumer", false, true, testIgnoredByConsumer},
		{"StoredElsewhere", false, false, testStoredElsewhere},
		// Promises: S22.
		{"UnknownCompression", true, true, testUnknownCompression},
		{"CompressedByDefault", false, true, testCompressedByDefault},
		{"ParkedIsTold", true, false, testParkedIsTold},
		{"Deferred", false, false, testDeferred},
		{"DeferredFails", false, false, testDeferredFails},
		{"DeferredEarly", false, true, testDeferredEarly},
		{"DeferredAccepted", false, true, testDeferredAccepted},
		{"DeferredGivenBack", true, false, testDeferredGivenBack},
		{"DeferredKeys", false, true, testDeferredKeys},
		{"DeferredWorkflow", false, false, testDeferredWorkflow},
		{"DeferredElsewhere", true, false, testDeferredElsewhere},
		{"DeferredAtMostOnce", false, false, testDeferredAtMostOnce},
		{"DeferredSealed", false, true, testDeferredSealed},
		{"DeferredWithoutJobs", false, true, testDeferredWithoutJobs},
		{"DeferredMany", false, false, testDeferredMany},
		{"RevokedDeferred", false, false, testRevokedDeferred},
		{"RevokedWhileDown", true, false, testRevokedWhileDown},
		// Promises: S33, S70.
		{"RevokedBetweenRetries", true, false, testRevokedBetweenRetries},
		{"RevokedUnheard", false, false, testRevokedUnheard},
		// Promises: S70.
		{"RevokedRunning", false, false, testRevokedRunning},
		// Promises: S70.
		{"RevokedDelayed", true, false, testRevokedDelayed},
		{"RevokedBySelector", true, false, testRevokedBySelector},
		{"RevokedSteps", false, false, testRevokedSteps},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			lacks(t, c.alike && h.Brief, "the same on every broker; other roads show it")
			lacks(t, c.queues && h.NoQueues, "this broker keeps no queues")
			lacks(t, c.name == "OldSideQueue" && h.OpenQueues, "older versions had no side queue there that could be seen")
			lacks(t, c.name == "Reserved" && h.Uncounted, "this broker does not tell what a subscription holds")
			lacks(t, c.name == "NoSuchQueue" && h.OpenQueues, "every name is a queue of this broker")
			lacks(t, strings.HasPrefix(c.name, "Revoked") && h.Revocations == nil, "no bus for revocations is at hand")
			lacks(t, c.name == "RevokedDelayed" && h.NoTimes, "this broker knows no times")
			lacks(t, c.name == "Poison" && h.Uncounted, "this broker does not know what was handed out before")
			c.fn(t, open)
		})
	}
}

// RunRequeue runs the part of the suite about requeued dead letters. It is for a broker and a
// result store that have each passed the whole suite elsewhere.
func RunRequeue(t *testing.T, open Open) {
	for name, fn := range map[string]func(*testing.T, Open){
		"Requeued": testRequeued, "RequeuedAgain": testRequeuedAgain, "RequeuedSealed": testRequeuedSealed,
		"RequeueCrashes": testRequeueCrashes, "OldLifeIsFenced": testOldLifeIsFenced, "RequeueRefused": testRequeueRefused,
	} {
		t.Run(name, func(t *testing.T) { fn(t, open) })
	}
}
