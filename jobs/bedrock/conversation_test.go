package bedrock

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// step is a request and the expected answer: the status, and the body if there is one. T matches
// any time; a text after a slash is a pattern.
type step struct{ ask, want string }

var anyTime = regexp.MustCompile(`"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"`)

// req returns a request from lines that are separated by " | ".
func req(text string) string { return strings.ReplaceAll(text, " | ", "\n") + "\n\n" }

const (
	text255 = "aaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbb" +
		"aaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbb" +
		"aaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbb"
	gotFoo   = `{"created":T,"data":{},"jobID":1,"lastRun":T,"name":"foo","nextRun":T,"priority":500,"repeat":"","retryAfter":""}`
	ok       = "200 OK"
	noJob    = "404 No job found"
	unknownJ = "404 No job with this jobID"
)

// stored returns the answer of QueryJob for a new job.
func stored(id int, name, state, data string) string {
	return fmt.Sprintf(`200 OK {"created":T,"data":%s,"jobID":%d,"lastRun":"","name":%q,"nextRun":T,"priority":500,"repeat":"","retryAfter":"","state":%q}`, data, id, name, state)
}

// ran returns the answer of QueryJob for a claimed job.
func ran(id int, name, state, data string) string {
	return strings.Replace(stored(id, name, state, data), `"lastRun":""`, `"lastRun":T`, 1)
}

func created(id int) string { return fmt.Sprintf(`200 OK {"jobID":%d}`, id) }

// conversations returns the steps that test each command. Each conversation begins with an empty
// store.
func conversations() map[string][]step {
	child := []step{
		{req("CreateJob | name: p | data: {\"p\":1}"), created(1)},
		{req("GetJob | name: p"), `200 OK {"created":T,"data":{"p":1},"jobID":1,"lastRun":T,"name":"p","nextRun":T,"priority":500,"repeat":"","retryAfter":""}`},
		{req("CreateJob | name: c | parentJobID: 1 | data: {\"c\":2}"), created(2)},
	}
	paused := append(child[:len(child):len(child)], step{req("FinishJob | jobID: 1"), ok})
	const again = `"repeat":"","retryAfter":"+5 MINUTES"}`
	retried := []step{{req("CreateJob | name: foo | retryAfter: +5 MINUTES"), created(1)}}
	for i := range 10 {
		data := "{}"
		if i > 0 { // before this claim was counted
			data = fmt.Sprintf(`{"retryAfterCount":%d}`, i)
		}
		retried = append(retried,
			step{req("GetJob | name: foo"), strings.NewReplacer(`"repeat":"","retryAfter":""}`, again, "{}", data).Replace(ok + " " + gotFoo)},
			step{req("GetJob | name: foo"), noJob},
			step{req("UpdateJob | jobID: 1 | data: {} | nextRun: 2020-01-01"), ok})
	}
	retried = append(retried,
		step{req("GetJob | name: foo"), "200 OK {}"},
		step{req("QueryJob | jobID: 1"), `/"retryAfter":"\+5 MINUTES","state":"FAILED"}$`},
		step{req("CreateJob | name: foo | retryAfter: +5 MINUTES"), created(2)},
		step{req("GetJobs | name: foo | numResults: 2"), `/^200 OK {"jobs":\[{.*"jobID":2,.*}\]}$`},
		step{req("FinishJob | jobID: 2"), ok},
		step{req("QueryJob | jobID: 2"), unknownJ})
	return map[string][]step{
		// Promises: B69.
		"retryAfter": retried,
		"what is shown of retryAfter": {
			{req("CreateJob | name: foo | retryAfter: +5 MINUTES | repeat: SCHEDULED, +1 DAY | firstRun: 2020-01-01 | data: {\"a\":1.50}"), created(1)},
			{req("GetJob | name: foo"), `/"data":{"a":1.50},`},
			{req("QueryJob | jobID: 1"), `/"data":{"a":1.50,"retryAfterCount":1,"originalNextRun":T},`},
			{req("UpdateJob | jobID: 1 | data: {\"b\":2,\"retryAfterCount\":9}"), ok},
			{req("Query | query: select * from jobs where jobID=1"), `/{"b":2,"retryAfterCount":1,"originalNextRun":T}\]\]$`},
			{req("FinishJob | jobID: 1 | data: {\"c\":3,\"retryAfterCount\":1,\"originalNextRun\":\"x\"}"), ok},
			{req("QueryJob | jobID: 1"), `/"data":{"c":3},`},
			{req("CreateJob | name: own"), created(2)},
			{req("UpdateJob | jobID: 2 | data: {\"retryAfterCount\":7}"), ok},
			{req("QueryJob | jobID: 2"), `/"data":{"retryAfterCount":7},`},
			{req("Query | query: select * from jobs where jobID=99"), "200 OK []"},
		},
		"a child that failed": append(paused[:len(paused):len(paused)], []step{
			{req("GetJob | name: c"), `/"jobID":2,`},
			{req("FailJob | jobID: 2"), ok},
			{req("GetJob | name: p"), `/"finishedChildJobs":\[\],"jobID":1,`},
			{req("FinishJob | jobID: 1"), "405 Failed to delete a job with outstanding children"},
			{req("DeleteJob | jobID: 2"), ok},
			{req("FinishJob | jobID: 1"), ok},
		}...),
		"a parent that does not wait": append(paused[:len(paused):len(paused)], []step{
			{req("GetJob | name: c"), `/"jobID":2,`},
			{req("RequeueJobs | jobIDs: 1"), ok},
			{req("FinishJob | jobID: 2"), "405 Can only retry/finish child job when parent is PAUSED"},
			{req("RetryJob | jobID: 2"), "405 Can only retry/finish child job when parent is PAUSED"},
		}...),
		// Promises: B1, B24, B60, B65, B25.
		"CreateJob: what is missing or malformed": {
			{req("CreateJob"), "402 Missing name"},
			{req("CreateJob | name:"), "402 Missing name"},
			{req("CreateJob | name: " + text255 + "a"), "402 Malformed name"},
			{req("CreateJob | name: a\\u0000b"), "402 Malformed name"},
			{req("CreateJob | name: a\xff"), "402 Malformed name"},
			{req("CreateJob | name: foo | data: x"), "402 Data is not a valid JSON Object"},
			{req("CreateJob | name: foo | data: [1]"), "402 Data is not a valid JSON Object"},
			{req("CreateJob | name: foo | data: {\"a\":}"), "402 Data is not a valid JSON Object"},
			{req("CreateJob | name: foo | data: {\"a\":\"\xff\"}"), "402 Data is not a valid JSON Object"},
			{req("CreateJob | name: foo | data: {\"a\":1} {}"), "402 Data is not a valid JSON Object"},
			{req("CreateJob | name: foo | data: {\"a\":\"" + strings.Repeat("a", 1<<20) + "\"}"), "402 Data is too long: 1048584 bytes, at most 1048576"},
			{req("CreateJob | name: foo | firstRun: tomorrow"), "402 Malformed firstRun"},
			{req("CreateJob | name: foo | firstRun: 2024-02-30"), "402 Malformed firstRun"},
			{req("CreateJob | name: foo | firstRun: 2024-02-20 24:00:00"), "402 Malformed firstRun"},
			{req("CreateJob | name: foo | repeat: sometimes"), "402 Malformed repeat"},
			{req("CreateJob | name: foo | repeat: finished, +999999999999 YEARS"), "402 Malformed repeat"},
			{req("CreateJob | name: foo | retryAfter: 10"), "402 Malformed retryAfter"},
			{req("CreateJob | name: foo | retryAfter: +5 MINUTES, +1 DAY"), "402 Malformed retryAfter"},
			{req("CreateJob | name: foo | jobPriority: 3"), "402 Invalid priority value"},
			{req("CreateJob | name: foo | jobPriority: high"), "402 Invalid priority value"},
			{req("CreateJob | name: foo | priority: 3"), "402 Invalid priority value"},
			{req("CreateJob | name: foo | parentJobID: x"), "402 Malformed parentJobID"},
			{req("CreateJob | name: foo | parentJobID: 9"), "404 parentJobID does not exist"},
			{req("CreateJob | name: foo | sequentialKey: " + text255 + "a"), "402 Malformed sequentialKey"},
			{req("CreateJob | name: foo | sequentialKey: k | repeat: daily"), "402 Malformed sequentialKey"},
			{req("CreateJob | name: foo | sequentialKey: k | parentJobID: 9"), "402 Malformed sequentialKey"},
			{req("GetJob | name: *"), noJob},
		},
		// Promises: B1, B10, B23, B25, B26, B27, B28, B70.
		"CreateJob: what is accepted": {
			{req("createjob | NAME: " + text255), created(1)},
			{req("CreateJob | name: foo | data: [] | firstRun: 2030-01-02 | jobPriority: 850 | writeConsistency: ASYNC | idempotent:"), created(2)},
			{req("QueryJob | jobID: 2"), `200 OK {"created":T,"data":{},"jobID":2,"lastRun":"","name":"foo","nextRun":T,"priority":850,"repeat":"","retryAfter":"","state":"QUEUED"}`},
			{req("CreateJob | name: foo | data:  {\"a\" : \"\\\\n\"}  | firstRun: 2030-01-02 03:04:05 | priority: 1000 | repeat: hourly | retryAfter: +5 minutes"), created(3)},
			{req("QueryJob | jobID: 3"), `200 OK {"created":T,"data":{"a" : "\n"},"jobID":3,"lastRun":"","name":"foo","nextRun":T,"priority":1000,"repeat":"hourly","retryAfter":"+5 minutes","state":"QUEUED"}`},
			{req("CreateJob | name: 42 | Connection: wait | timeout: 110000"), created(4)},
			{req("QueryJob | jobID: 4"), `200 OK {"created":T,"data":{},"jobID":4,"lastRun":"","name":42,"nextRun":T,"priority":500,"repeat":"","retryAfter":"","state":"QUEUED"}`},
			{req("CreateJob | name: '; DROP TABLE jobs; --"), created(5)},
			{req("GetJob | name: ' OR 1=1 --"), noJob},
		},
		// Promises: B3.
		"CreateJob: unique": {
			{req("CreateJob | name: foo | unique: true | data: {\"a\":1,\"b\":2}"), created(1)},
			{req("CreateJob | name: foo | unique: true | data: {\"b\":2,\"a\":1}"), created(1)},
			{req("CreateJob | name: foo | unique: true | data: {\"b\":null,\"c\":3}"), created(1)},
			{req("QueryJob | jobID: 1"), stored(1, "foo", "QUEUED", `{"a":1,"c":3}`)},
			{req("CreateJob | name: foo | unique: true | overwrite: false | data: {\"a\":5}"), created(1)},
			{req("QueryJob | jobID: 1"), stored(1, "foo", "QUEUED", `{"a":1,"c":3}`)},
			{req("CreateJob | name: foo | unique: false"), created(2)},
		},
		// Promises: B2.
		"CreateJobs": {
			{req("CreateJobs"), "401 Invalid JSON"},
			{req("CreateJobs | jobs: {}"), "401 Invalid JSON"},
			{req("CreateJobs | jobs: []"), "401 Invalid JSON"},
			{req("CreateJobs | jobs: [1]"), "401 Invalid JSON"},
			{req("CreateJobs | jobs: [{}]"), "401 Invalid JSON"},
			{req("CreateJobs | jobs: [{\"name\":\"a\"}"), "401 Invalid JSON"},
			{req("CreateJobs | jobs: [{\"name\":\"a\"},{\"data\":{}}]"), "402 Missing name"},
			{req("CreateJobs | jobs: [{\"name\":\"a\"},{\"name\":\"b\",\"repeat\":\"x\"}]"), "402 Malformed repeat"},
			{req("CreateJobs | jobs: [{\"name\":\"a\"},{\"name\":\"b\",\"parentJobID\":77}]"), "404 parentJobID does not exist"},
			{req("GetJob | name: *"), noJob},
			{req(`CreateJobs | jobs: [{"name":"a","data":[]},{"name":"b","data":{"x":[1]},"jobPriority":1000},{"name":"c","data":"{\\"y\\":\\"\\\\u0041\\"}","repeat":null}]`), `200 OK {"jobIDs":[1,2,3]}`},
			{req("GetJobs | name: * | numResults: 10"), `200 OK {"jobs":[` +
				`{"created":T,"data":{"x":[1]},"jobID":2,"lastRun":T,"name":"b","nextRun":T,"priority":1000,"repeat":"","retryAfter":""},` +
				`{"created":T,"data":{},"jobID":1,"lastRun":T,"name":"a","nextRun":T,"priority":500,"repeat":"","retryAfter":""},` +
				`{"created":T,"data":{"y":"\u0041"},"jobID":3,"lastRun":T,"name":"c","nextRun":T,"priority":500,"repeat":"","retryAfter":""}]}`},
		},
		// Promises: B4, B5, B7, B29, B33.
		"GetJob": {
			{req("GetJob"), "402 Missing name"},
			{req("GetJob | name: foo | numResults: 1"), "402 Cannot use numResults with GetJob; try GetJobs"},
			{req("GetJob | name: foo | jobPriority: 7"), "402 Invalid priority value"},
			{req("GetJob | name: foo"), noJob},
			{req("GetJob | name: [a-"), noJob},
			{req("GetJob | name: *a*a*a*a*b"), noJob},
			{req("GetJob | name: " + strings.Repeat("*a", 120) + "*b"), noJob},
			{req("GetJob | name: " + strings.Repeat("*a", 1000) + "*b"), "402 Malformed name"},
			{req("GetJob | name: foo | Connection: wait | timeout: 1"), "303 Timeout"},
			{req("CreateJob | name: foo"), created(1)},
			{req("GetJob | name: foo | jobPriority: 250"), noJob},
			{req("GetJob | name: foo,"), noJob},
			{req("GetJob | name: " + strings.Repeat("a,", 1001)), "402 Malformed name"},
			{req("GetJob | name: foo, " + text255 + "a"), "402 Malformed name"},
			{req("GetJob | name: [^a-e]o? | jobPriority: 500"), ok + " " + gotFoo},
			{req("GetJob | name: foo"), noJob},
			{req("QueryJob | jobID: 1"), ran(1, "foo", "RUNNING", "{}")},
			{req("CreateJob | name: a*"), created(2)},
			{req("CreateJob | name: ab"), created(3)},
			{req("GetJob | name: x,  a*"), `200 OK {"created":T,"data":{},"jobID":2,"lastRun":T,"name":"a*","nextRun":T,"priority":500,"repeat":"","retryAfter":""}`},
			{req("GetJob | name: x, a*"), noJob},
			{req("CreateJob | name: later | firstRun: 2199-01-01"), created(4)},
			{req("GetJob | name: later"), noJob},
		},
		// Promises: B9.
		"GetJobs": {
			{req("GetJobs | name: foo"), "402 Missing numResults"},
			{req("GetJobs | name: foo | numResults: many"), "402 Malformed numResults"},
			{req("GetJobs | name: foo | numResults: 0"), "402 Malformed numResults"},
			{req("GetJobs | numResults: 1"), "402 Missing name"},
			{req("GetJobs | name: foo | numResults: 1"), noJob},
			{req("GetJobs | name: foo | numResults: 1 | Connection: wait | timeout: 1"), "303 Timeout"},
			{req("CreateJob | name: foo"), created(1)},
			{req("GetJobs | name: foo | numResults: 1000000"), ok + ` {"jobs":[` + gotFoo + `]}`},
		},
		// Promises: B69.
		"mocked jobs": {
			{req("CreateJob | name: foo | mockRequest: true"), created(1)},
			{req("GetJob | name: foo"), noJob},
			{req("GetJobs | name: foo | numResults: 5 | getMockedJobs: true"), `200 OK {"jobs":[{"created":T,"data":{"mockRequest":true},"jobID":1,"lastRun":T,"name":"foo","nextRun":T,"priority":500,"repeat":"","retryAfter":""}]}`},
			{req("CreateJob | name: c | parentJobID: 1"), "405 Parent and child jobs must have matching mockRequest setting"},
		},
		// Promises: B10.
		"QueryJob": {
			{req("QueryJob"), "402 Missing jobID"},
			{req("QueryJob | jobID: x"), "402 Malformed jobID"},
			{req("QueryJob | jobID: 0"), "402 Malformed jobID"},
			{req("QueryJob | jobID: -1"), "402 Malformed jobID"},
			{req("QueryJob | jobID: 1"), unknownJ},
			{req("QueryJob | jobID: 9007199254740993"), unknownJ},
		},
		// Promises: B11, B34, B35, B36.
		"UpdateJob": {
			{req("UpdateJob | data: {}"), "402 Missing jobID"},
			{req("UpdateJob | jobID: 1"), "402 Missing data"},
			{req("UpdateJob | jobID: 1 | data: 5"), "402 Data is not a valid JSON Object"},
			{req("UpdateJob | jobID: 1 | data: {}"), unknownJ},
			{req("CreateJob | name: foo"), created(1)},
			{req("UpdateJob | jobID: 1 | data: {} | repeat: x"), "402 Malformed repeat"},
			{req("UpdateJob | jobID: 1 | data: {} | jobPriority: 1"), "402 Invalid priority value"},
			{req("UpdateJob | jobID: 1 | data: {} | nextRun: x"), "402 Malformed nextRun"},
			{req("UpdateJob | jobID: 1 | data: {\"v\":2} | jobPriority: 0"), ok},
			{req("QueryJob | jobID: 1"), strings.Replace(stored(1, "foo", "QUEUED", `{"v":2}`), "500", "0", 1)},
			{req("UpdateJob | jobID: 1 | data: {} | nextRun: 2199-01-01"), ok},
			{req("GetJob | name: foo"), noJob},
			{req("UpdateJob | jobID: 1 | data: {} | nextRun: 2020-01-01 | jobPriority: 500 | repeat: daily"), ok},
			{req("GetJob | name: foo"), `200 OK {"created":T,"data":{},"jobID":1,"lastRun":T,"name":"foo","nextRun":T,"priority":500,"repeat":"daily","retryAfter":""}`},
			{req("UpdateJob | jobID: 1 | data: {\"v\":3} | shouldClearRepeat: 1"), ok},
			{req("QueryJob | jobID: 1"), ran(1, "foo", "RUNNING", `{"v":3}`)},
		},
		// Promises: B12, B37.
		"FinishJob": {
			{req("FinishJob"), "402 Missing jobID"},
			{req("FinishJob | jobID: 1"), unknownJ},
			{req("CreateJob | name: foo"), created(1)},
			{req("FinishJob | jobID: 1"), "405 Can only retry/finish RUNNING and RUNQUEUED jobs"},
			{req("GetJob | name: foo"), ok + " " + gotFoo},
			{req("FinishJob | jobID: 1 | data: x"), "402 Data is not a valid JSON Object"},
			{req("FinishJob | jobID: 1"), ok},
			{req("QueryJob | jobID: 1"), unknownJ},
			{req("FinishJob | jobID: 1"), unknownJ},
		},
		// Promises: B12, B37, B38, B39, B40.
		"FinishJob: repeated": {
			{req("CreateJob | name: foo | repeat: finished, +1 minute"), created(1)},
			{req("GetJob | name: foo"), strings.Replace(ok+" "+gotFoo, `"repeat":""`, `"repeat":"finished, +1 minute"`, 1)},
			{req("FinishJob | jobID: 1 | data: {\"value\":3}"), ok},
			{req("GetJob | name: foo"), noJob},
			{req("QueryJob | jobID: 1"), strings.Replace(ran(1, "foo", "QUEUED", `{"value":3}`), `"repeat":""`, `"repeat":"finished, +1 minute"`, 1)},
			{req("UpdateJob | jobID: 1 | data: {} | nextRun: 2020-01-01"), ok},
			{req("GetJob | name: foo"), strings.Replace(ok+" "+gotFoo, `"repeat":""`, `"repeat":"finished, +1 minute"`, 1)},
			{req("FinishJob | jobID: 1 | data: {\"delete\":\"true\"}"), ok},
			{req("QueryJob | jobID: 1"), unknownJ},
		},
		// Promises: B13, B42, B43, B44, B45, B46, B47, B48.
		"RetryJob": {
			{req("RetryJob"), "402 Missing jobID"},
			{req("RetryJob | jobID: 1"), unknownJ},
			{req("RetryJob | jobID: 1 | delay: x"), "402 Malformed delay"},
			{req("RetryJob | jobID: 1 | delay: 123456789"), "402 Malformed delay"},
			{req("RetryJob | jobID: 1 | delay: -1"), "402 Must specify a non-negative delay when retrying"},
			{req("RetryJob | jobID: 1 | nextRun: x"), "402 Malformed nextRun"},
			{req("RetryJob | jobID: 1 | name: " + text255 + "a"), "402 Malformed name"},
			{req("RetryJob | jobID: 1 | data: x"), "402 Data is not a valid JSON Object"},
			{req("RetryJob | jobID: 1 | jobPriority: 1"), "402 Invalid priority value"},
			{req("CreateJob | name: foo"), created(1)},
			{req("RetryJob | jobID: 1"), "405 Can only retry/finish RUNNING and RUNQUEUED jobs"},
			{req("GetJob | name: foo"), ok + " " + gotFoo},
			{req("RetryJob | jobID: 1 | delay: 3600"), ok},
			{req("GetJob | name: foo"), noJob},
			{req("UpdateJob | jobID: 1 | data: {} | nextRun: 2020-01-01"), ok},
			{req("GetJob | name: foo"), ok + " " + gotFoo},
			{req("RetryJob | jobID: 1 | nextRun: 2020-01-01 | delay: 3600 | name: bar | data: {\"again\":1} | jobPriority: 250"), ok},
			{req("GetJob | name: foo"), noJob},
			{req("GetJob | name: bar"), `200 OK {"created":T,"data":{"again":1},"jobID":1,"lastRun":T,"name":"bar","nextRun":T,"priority":250,"repeat":"","retryAfter":""}`},
			{req("RetryJob | jobID: 1"), ok},
			{req("GetJob | name: bar"), `200 OK {"created":T,"data":{"again":1},"jobID":1,"lastRun":T,"name":"bar","nextRun":T,"priority":250,"repeat":"","retryAfter":""}`},
			{req("UpdateJob | jobID: 1 | data: {} | repeat: finished, +1 DAY"), ok},
			{req("RetryJob | jobID: 1 | nextRun: 2020-01-01"), ok},
			{req("GetJob | name: bar"), noJob},
			{req("UpdateJob | jobID: 1 | data: {} | nextRun: 2020-01-01"), ok},
			{req("GetJob | name: bar"), `200 OK {"created":T,"data":{},"jobID":1,"lastRun":T,"name":"bar","nextRun":T,"priority":250,"repeat":"finished, +1 DAY","retryAfter":""}`},
			{req("RetryJob | jobID: 1 | nextRun: 2020-01-01 | ignoreRepeat: true"), ok},
			{req("GetJob | name: bar | jobPriority: 250"), `200 OK {"created":T,"data":{},"jobID":1,"lastRun":T,"name":"bar","nextRun":T,"priority":250,"repeat":"finished, +1 DAY","retryAfter":""}`},
		},
		// Promises: B14, B36.
		"FailJob": {
			{req("FailJob"), "402 Missing jobID"},
			{req("FailJob | jobID: 1"), unknownJ},
			{req("CreateJob | name: foo"), created(1)},
			{req("FailJob | jobID: 1"), "405 Can only fail RUNNING or RUNQUEUED jobs"},
			{req("GetJob | name: foo"), ok + " " + gotFoo},
			{req("FailJob | jobID: 1 | data: {\"why\":\"x\"}"), ok},
			{req("QueryJob | jobID: 1"), ran(1, "foo", "FAILED", `{"why":"x"}`)},
			{req("FailJob | jobID: 1"), "405 Can only fail RUNNING or RUNQUEUED jobs"},
			{req("GetJob | name: foo"), noJob},
			{req("DeleteJob | jobID: 1"), ok},
		},
		// Promises: B15, B41.
		"DeleteJob": {
			{req("DeleteJob"), "402 Missing jobID"},
			{req("DeleteJob | jobID: 1"), unknownJ},
			{req("CreateJob | name: foo"), created(1)},
			{req("DeleteJob | jobID: 1"), ok},
			{req("QueryJob | jobID: 1"), unknownJ},
			{req("CreateJob | name: foo"), created(2)},
			{req("GetJob | name: foo"), strings.Replace(ok+" "+gotFoo, `"jobID":1`, `"jobID":2`, 1)},
			{req("DeleteJob | jobID: 2"), "405 Can't delete a RUNNING job"},
		},
		// Promises: B17.
		"RequeueJobs": {
			{req("RequeueJobs"), "402 Missing jobIDs"},
			{req("RequeueJobs | jobIDs: a"), "402 Malformed jobIDs"},
			{req("RequeueJobs | jobIDs: 1,0"), "402 Malformed jobIDs"},
			{req("RequeueJobs | jobIDs: ,"), "402 Malformed jobIDs"},
			{req("RequeueJobs | jobIDs: 1 | name: " + text255 + "a"), "402 Malformed name"},
			{req("CreateJob | name: foo"), created(1)},
			{req("CreateJob | name: foo | firstRun: 2199-01-01"), created(2)},
			{req("GetJob | name: foo"), ok + " " + gotFoo},
			{req("RequeueJobs | jobIDs: 1, 2"), ok},
			{req("GetJobs | name: foo | numResults: 5"), `200 OK {"jobs":[` + gotFoo + "," + strings.Replace(gotFoo, `"jobID":1`, `"jobID":2`, 1) + `]}`},
			{req("RequeueJobs | jobIDs: 2 | name: bar"), ok},
			{req("GetJob | name: bar"), strings.NewReplacer(`"jobID":1`, `"jobID":2`, "foo", "bar").Replace(ok + " " + gotFoo)},
		},
		// Promises: B69.
		"children": append(child[:len(child):len(child)], []step{
			{req("QueryJob | jobID: 2"), stored(2, "c", "PAUSED", `{"c":2}`)},
			{req("CreateJob | name: g | parentJobID: 2"), "405 Cannot create grandchildren"},
			{req("CreateJob | name: u | unique: true"), created(3)},
			{req("CreateJob | name: u | unique: true | parentJobID: 1 | data: {\"x\":1}"), "404 Trying to create a child that already exists, but it is tied to a different parent"},
			{req("FinishJob | jobID: 2"), "405 Can only retry/finish RUNNING and RUNQUEUED jobs"},
			{req("DeleteJob | jobID: 1"), "405 Can't delete a RUNNING job"},
			{req("FinishJob | jobID: 1"), ok},
			{req("QueryJob | jobID: 1"), ran(1, "p", "PAUSED", `{"p":1}`)},
			{req("DeleteJob | jobID: 1"), "405 Can't delete a parent jobs with children running"},
			{req("GetJob | name: c"), `200 OK {"created":T,"data":{"c":2},"jobID":2,"lastRun":T,"name":"c","nextRun":T,"parentData":{"p":1},"parentJobID":1,"priority":500,"repeat":"","retryAfter":""}`},
			{req("FinishJob | jobID: 2 | data: {\"c\":3}"), ok},
			{req("QueryJob | jobID: 2"), ran(2, "c", "FINISHED", `{"c":3}`)},
			{req("GetJob | name: p"), `200 OK {"cancelledChildJobs":[],"created":T,"data":{"p":1},"finishedChildJobs":[{"data":{"c":3},"jobID":2}],"jobID":1,"lastRun":T,"name":"p","nextRun":T,"priority":500,"repeat":"","retryAfter":""}`},
			{req("FinishJob | jobID: 1"), ok},
			{req("QueryJob | jobID: 2"), unknownJ},
			{req("QueryJob | jobID: 1"), unknownJ},
			{req("CreateJob | name: q"), created(4)},
			{req("CreateJob | name: x | parentJobID: 4"), "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED"},
		}...),
		// Promises: B16, B69.
		"CancelJob": append(paused[:len(paused):len(paused)], []step{
			{req("CancelJob"), "402 Missing jobID"},
			{req("CancelJob now | jobID: 2"), "430 Unrecognized command"},
			{req("CancelJob | jobID: 9"), unknownJ},
			{req("CancelJob | jobID: 1"), "404 Invalid jobID - Cannot cancel a job with children"},
			{req("CreateJob | name: alone"), created(3)},
			{req("CancelJob | jobID: 3"), "404 Invalid jobID - Cannot cancel a job without a parent"},
			{req("CancelJob | jobID: 2"), ok},
			{req("QueryJob | jobID: 2"), stored(2, "c", "CANCELLED", `{"c":2}`)},
			{req("GetJob | name: p"), `200 OK {"cancelledChildJobs":[{"data":{"c":2},"jobID":2}],"created":T,"data":{"p":1},"finishedChildJobs":[],"jobID":1,"lastRun":T,"name":"p","nextRun":T,"priority":500,"repeat":"","retryAfter":""}`},
		}...),
		// Promises: B63, B66.
		"sequentialKey": {
			{req("CreateJob | name: s | sequentialKey: k | data: {\"n\":1}"), created(1)},
			{req("CreateJob | name: s | sequentialKey: k | data: {\"n\":2}"), created(2)},
			{req("CreateJob | name: s | sequentialKey: other | data: {\"n\":3}"), created(3)},
			{req("QueryJob | jobID: 2"), stored(2, "s", "WAITING", `{"n":2}`)},
			{req("GetJobs | name: s | numResults: 5"), `200 OK {"jobs":[` +
				`{"created":T,"data":{"n":1},"jobID":1,"lastRun":T,"name":"s","nextRun":T,"priority":500,"repeat":"","retryAfter":""},` +
				`{"created":T,"data":{"n":3},"jobID":3,"lastRun":T,"name":"s","nextRun":T,"priority":500,"repeat":"","retryAfter":""}]}`},
			{req("FinishJob | jobID: 1"), ok},
			{req("GetJob | name: s"), `200 OK {"created":T,"data":{"n":2},"jobID":2,"lastRun":T,"name":"s","nextRun":T,"priority":500,"repeat":"","retryAfter":""}`},
		},
		// Promises: B18, B67.
		"Query": {
			{req("Query"), "402 Missing query"},
			{req("Query | query: select * from jobs;"), "200 OK []"},
			{req("CreateJob | name: foo | data: {\"value\":1} | repeat: finished, +1 minute"), created(1)},
			{req("CreateJob | name: it's"), created(2)},
			{req("Query | query: select * from jobs;"), `200 OK [[T,1,"QUEUED","foo",T,"","finished, +1 minute",{"value":1}],[T,2,"QUEUED","it's",T,"","",{}]]`},
			{req("Query | query: SELECT  *\\nFROM jobs WHERE jobID = 2 ;"), `200 OK [[T,2,"QUEUED","it's",T,"","",{}]]`},
			{req("Query | query: select * from jobs where name='it''s'"), `200 OK [[T,2,"QUEUED","it's",T,"","",{}]]`},
			{"Query\nContent-Length: 18\n\nselect * from jobs", `200 OK [[T,1,"QUEUED","foo",T,"","finished, +1 minute",{"value":1}],[T,2,"QUEUED","it's",T,"","",{}]]`},
			{req("Query | query: select * from jobs where jobID=7"), `200 OK []`},
			{req("Query | query: select * from jobs where name='x' or 1=1"), "402 Bad query"},
			{req("Query | query: select * from jobs where jobID='1'"), "402 Bad query"},
			{req("Query | query: select * from jobs where name=x"), "402 Bad query"},
			{req("Query | query: select * from jobs where name='x"), "402 Bad query"},
			{req("Query | query: select * from jobs; drop table jobs"), "402 Bad query"},
			{req("Query | query: select name from jobs"), "402 Bad query"},
			{req("Query | query: delete from jobs;"), "402 Bad query"},
			{req("Query | query: ;"), "402 Bad query"},
		},
		"others": {
			{req("Nonsense | a: b"), "430 Unrecognized command"},
			{req("CreateJob foo | name: foo"), created(1)},
			{req("GET / HTTP/1.1 | Host: localhost"), "430 Unrecognized command"}, // the rest is not read
		},
	}
}

// talk performs a conversation and reports answers that differ.
func talk(t *testing.T, c *client, steps []step) {
	t.Helper()
	for _, s := range steps {
		got := c.ask(s.ask)
		text := strings.TrimSpace(got.Status + " " + anyTime.ReplaceAllString(got.Body, "T"))
		if expr, ok := strings.CutPrefix(s.want, "/"); ok {
			if !regexp.MustCompile(expr).MatchString(text) {
				t.Errorf("%q: %q does not match %q", s.ask, text, expr)
			}
			continue
		}
		if diff := cmp.Diff(s.want, text); diff != "" {
			t.Errorf("%.200q (-want +got)\n%s", s.ask, diff)
		}
	}
}

// jobsServer starts a server for a service in memory.
func jobsServer(t testing.TB, c Config) *serving {
	t.Helper()
	c.Service = service(t)
	return serve(t, c)
}

func TestConversations(t *testing.T) {
	for name, steps := range conversations() {
		t.Run(name, func(t *testing.T) {
			s := jobsServer(t, Config{})
			talk(t, dial(t, s.addr), steps)
		})
	}
}
