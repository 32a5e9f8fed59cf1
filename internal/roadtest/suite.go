package roadtest

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
		{"TypedResult", false, testTypedResult},
		{"Wrapped", false, testWrapped},
		{"Failure", false, testFailure},
		{"BadArgs", false, testBadArgs},
		{"Panic", false, testPanic},
		{"Goexit", false, testGoexit},
		{"RequestInContext", false, testRequestInContext},
		{"MetadataPrecedence", false, testMetadataPrecedence},
		{"IgnoreResult", false, testIgnoreResult},
		{"SubmitAll", false, testSubmitAll},
		{"NamesAreChecked", false, testNamesAreChecked},
		{"TooLarge", false, testTooLarge},
		{"SendMiddleware", false, testSendMiddleware},
		{"NoResultStore", false, testNoResultStore},
		{"TimeLimit", false, testTimeLimit},
		{"StuckHandlers", false, testStuckHandlers},
		{"StuckHoldsNothing", true, testStuckHoldsNothing},
		{"RateLimit", false, testRateLimit},
		{"ManyOnce", false, testManyOnce},
		{"Successors", false, testSuccessors},
		{"Chain", false, testChain},
		{"ChainFails", false, testChainFails},
		{"StepIsRetried", false, testStepIsRetried},
		{"StepArguments", false, testStepArguments},
		{"StepNumbers", false, testStepNumbers},
		{"Group", false, testGroup},
		{"Chord", false, testChord},
		{"ChordPolicies", false, testChordPolicies},
		{"NestedWorkflow", false, testNestedWorkflow},
		{"Stream", false, testStream},
		{"ForgottenGroup", true, testForgottenGroup},
		{"MembersThatNeverRun", true, testMembersThatNeverRun},
		{"GroupsNeedAGatherer", false, testGroupsNeedAGatherer},
		{"Events", false, testEvents},
		{"ExpiredEvent", true, testExpiredEvent},
		{"Heartbeats", false, testHeartbeats},
		{"RetryByHand", false, testRetryByHand},
		{"RetryLimit", false, testRetryLimit},
		{"RetryMiddleware", false, testRetryMiddleware},
		{"RetryPolicy", false, testRetryPolicy},
		{"RetryHandler", false, testRetryHandler},
		{"RetryQueue", false, testRetryQueue},
		{"RetryBudget", false, testRetryBudget},
		{"RetryOutlivesConsumer", true, testRetryOutlivesConsumer},
		{"Hooks", false, testHooks},
		{"HookVeto", false, testHookVeto},
		{"HookPanic", false, testHookPanic},
		{"Snooze", false, testSnooze},
		{"UnknownTask", false, testUnknownTask},
		{"UnknownThenDeployed", true, testUnknownThenDeployed},
		{"AtMostOnce", false, testAtMostOnce},
		{"RawBytes", false, testRawBytes},
		{"RawContentTypes", true, testRawContentTypes},
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
		{"Prefetch", true, testPrefetch},
		{"Reserved", true, testReserved},
		{"OneEach", true, testOneEach},
		{"QueuedBeforeConsumer", true, testQueuedBeforeConsumer},
		{"Expired", true, testExpired},
		{"Delayed", true, testDelayed},
		{"WrongClock", true, testWrongClock},
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
		{"CompressedRoad", false, testCompressedRoad},
		{"PendingOfNobody", false, testPendingOfNobody},
		{"WorkflowIDs", false, testWorkflowIDs},
		{"FailedStep", false, testFailedStep},
		{"IgnoredByConsumer", false, testIgnoredByConsumer},
		{"StoredElsewhere", false, testStoredElsewhere},
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
		{"RevokedBetweenRetries", true, testRevokedBetweenRetries},
		{"RevokedUnheard", false, testRevokedUnheard},
		{"RevokedRunning", false, testRevokedRunning},
		{"RevokedDelayed", true, testRevokedDelayed},
		{"RevokedBySelector", true, testRevokedBySelector},
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

// RunRequeue runs the part of the suite that is about dead letters that are requeued, for a broker and a result store of which each passes
// all of the suite elsewhere.
func RunRequeue(t *testing.T, open Open) {
	for name, fn := range map[string]func(*testing.T, Open){
		"Requeued": testRequeued, "RequeuedAgain": testRequeuedAgain, "RequeuedSealed": testRequeuedSealed,
		"RequeueCrashes": testRequeueCrashes, "OldLifeIsFenced": testOldLifeIsFenced, "RequeueRefused": testRequeueRefused,
	} {
		t.Run(name, func(t *testing.T) { fn(t, open) })
	}
}
