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
		fn     func(t *testing.T, open Open)
	}{
		// Promises: S2, S3, S26.
		{"TypedResult", false, testTypedResult},
		{"Wrapped", false, testWrapped},
		{"Failure", false, testFailure},
		{"BadArgs", false, testBadArgs},
		{"Panic", false, testPanic},
		{"Goexit", false, testGoexit},
		// Promises: S55.
		{"RequestInContext", false, testRequestInContext},
		// Promises: S12, S13, S23.
		{"MetadataPrecedence", false, testMetadataPrecedence},
		// Promises: S21.
		{"IgnoreResult", false, testIgnoreResult},
		{"SubmitAll", false, testSubmitAll},
		{"NamesAreChecked", false, testNamesAreChecked},
		{"TooLarge", false, testTooLarge},
		{"SendMiddleware", false, testSendMiddleware},
		{"NoResultStore", false, testNoResultStore},
		// Promises: S20, S23.
		{"TimeLimit", false, testTimeLimit},
		// Promises: S20.
		{"StuckHandlers", false, testStuckHandlers},
		{"StuckHoldsNothing", true, testStuckHoldsNothing},
		{"RateLimit", false, testRateLimit},
		{"ManyOnce", false, testManyOnce},
		// Promises: S25, S64, S66, S67.
		{"Successors", false, testSuccessors},
		// Promises: S14, S63.
		{"Chain", false, testChain},
		// Promises: S63.
		{"ChainFails", false, testChainFails},
		{"StepIsRetried", false, testStepIsRetried},
		{"StepArguments", false, testStepArguments},
		{"StepNumbers", false, testStepNumbers},
		// Promises: S14, S68.
		{"Group", false, testGroup},
		// Promises: S14.
		{"Chord", false, testChord},
		{"ChordPolicies", false, testChordPolicies},
		// Promises: S64.
		{"NestedWorkflow", false, testNestedWorkflow},
		{"Stream", false, testStream},
		{"ForgottenGroup", true, testForgottenGroup},
		{"MembersThatNeverRun", true, testMembersThatNeverRun},
		{"GroupsNeedAGatherer", false, testGroupsNeedAGatherer},
		// Promises: S27, S28, S29, S30, S31, S32, S33, S34, S37.
		{"Events", false, testEvents},
		{"ExpiredEvent", true, testExpiredEvent},
		{"Heartbeats", false, testHeartbeats},
		// Promises: S56.
		{"RetryByHand", false, testRetryByHand},
		// Promises: S16, S59.
		{"RetryLimit", false, testRetryLimit},
		// Promises: S17.
		{"RetryMiddleware", false, testRetryMiddleware},
		{"RetryPolicy", false, testRetryPolicy},
		// Promises: S58.
		{"RetryHandler", false, testRetryHandler},
		// Promises: S56.
		{"RetryQueue", false, testRetryQueue},
		{"RetryBudget", false, testRetryBudget},
		// Promises: S60.
		{"RetryOutlivesConsumer", true, testRetryOutlivesConsumer},
		// Promises: S71.
		{"Hooks", false, testHooks},
		// Promises: S72.
		{"HookVeto", false, testHookVeto},
		{"HookPanic", false, testHookPanic},
		{"Snooze", false, testSnooze},
		// Promises: S11, S15.
		{"UnknownTask", false, testUnknownTask},
		// Promises: S11.
		{"UnknownThenDeployed", true, testUnknownThenDeployed},
		// Promises: S24, S54.
		{"AtMostOnce", false, testAtMostOnce},
		// Promises: S9.
		{"RawBytes", false, testRawBytes},
		// Promises: S9, S22.
		{"RawContentTypes", true, testRawContentTypes},
		// Promises: S9.
		{"JSONByHand", false, testJSONByHand},
		{"RetryAtMaxBody", false, testRetryAtMaxBody},
		{"ResultTooLarge", false, testResultTooLarge},
		{"SameIDTwice", false, testSameIDTwice},
		{"Unique", false, testUnique},
		{"UniqueBatch", false, testUniqueBatch},
		{"UniqueOutcomes", false, testUniqueOutcomes},
		{"StopWaits", false, testStopWaits},
		{"StopForced", true, testStopForced},
		{"StopGivesBack", true, testStopGivesBack},
		{"Kill", true, testKill},
		// Promises: S51.
		{"Prefetch", true, testPrefetch},
		{"Reserved", true, testReserved},
		// Promises: S52.
		{"OneEach", true, testOneEach},
		{"QueuedBeforeConsumer", true, testQueuedBeforeConsumer},
		{"Expired", true, testExpired},
		{"Delayed", true, testDelayed},
		{"WrongClock", true, testWrongClock},
		// Promises: S48.
		{"NoSuchQueue", true, testNoSuchQueue},
		{"Unreadable", true, testUnreadable},
		{"Poison", true, testPoison},
		{"OldSideQueue", true, testOldSideQueue},
		{"NoCrash", true, testNoCrash},
		{"EarlyBound", true, testEarlyBound},
		{"EarlyAckUnknown", true, testEarlyAckUnknown},
		{"EarlyRetryUnknown", true, testEarlyRetryUnknown},
		{"EarlyNotSettled", true, testEarlyNotSettled},
		{"EarlyHeldOnly", true, testEarlyHeldOnly},
		{"FailedIsKept", true, testFailedIsKept},
		{"Requeued", true, testRequeued},
		{"RequeuedAgain", true, testRequeuedAgain},
		{"RequeuedSealed", true, testRequeuedSealed},
		{"RequeueCrashes", true, testRequeueCrashes},
		{"OldLifeIsFenced", true, testOldLifeIsFenced},
		{"RequeueRefused", true, testRequeueRefused},
		{"RetriedGroup", true, testRetriedGroup},
		{"Progress", false, testProgress},
		{"WorkflowTimeLimit", true, testWorkflowTimeLimit},
		{"SeverInMidTask", true, testSeverInMidTask},
		{"SeverKeepsTask", true, testSeverKeepsTask},
		{"ReplyTo", true, testReplyTo},
		{"ForeignHeaders", true, testForeignHeaders},
		{"Headers", false, testHeaders},
		{"ForgedCounts", true, testForgedCounts},
		{"Compressed", true, testCompressed},
		{"Sealed", false, testSealed},
		{"SealedWorkflow", false, testSealedWorkflow},
		{"KeyRotation", true, testKeyRotation},
		// Promises: S8.
		{"CompressedRoad", false, testCompressedRoad},
		{"PendingOfNobody", false, testPendingOfNobody},
		{"WorkflowIDs", false, testWorkflowIDs},
		{"StepHeaders", false, testStepHeaders},
		{"StepHeadersTooLarge", false, testStepHeadersTooLarge},
		{"FailedStep", false, testFailedStep},
		{"IgnoredByConsumer", false, testIgnoredByConsumer},
		{"StoredElsewhere", false, testStoredElsewhere},
		// Promises: S22.
		{"UnknownCompression", true, testUnknownCompression},
		{"CompressedByDefault", false, testCompressedByDefault},
		{"ParkedIsTold", true, testParkedIsTold},
		{"Deferred", false, testDeferred},
		{"DeferredFails", false, testDeferredFails},
		{"DeferredEarly", false, testDeferredEarly},
		{"DeferredAccepted", false, testDeferredAccepted},
		{"DeferredGivenBack", true, testDeferredGivenBack},
		{"DeferredKeys", false, testDeferredKeys},
		{"DeferredWorkflow", false, testDeferredWorkflow},
		{"DeferredElsewhere", true, testDeferredElsewhere},
		{"DeferredAtMostOnce", false, testDeferredAtMostOnce},
		{"DeferredSealed", false, testDeferredSealed},
		{"DeferredWithoutJobs", false, testDeferredWithoutJobs},
		{"DeferredMany", false, testDeferredMany},
		{"RevokedDeferred", false, testRevokedDeferred},
		{"RevokedWhileDown", true, testRevokedWhileDown},
		// Promises: S33, S70.
		{"RevokedBetweenRetries", true, testRevokedBetweenRetries},
		{"RevokedUnheard", false, testRevokedUnheard},
		// Promises: S70.
		{"RevokedRunning", false, testRevokedRunning},
		// Promises: S70.
		{"RevokedDelayed", true, testRevokedDelayed},
		{"RevokedBySelector", true, testRevokedBySelector},
		{"RevokedSteps", false, testRevokedSteps},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
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
