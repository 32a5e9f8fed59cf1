package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
)

// logKeys maps wrong attribute names of log lines to the fixed keys of middleware/log.go. Adapters
// cannot import that package, so they write the keys as text.
var logKeys = map[string]string{
	"id": "task_id", "taskid": "task_id", "message_id": "task_id", "msg_id": "task_id",
	"task_name": "task", "handler": "task",
	"queue_name": "queue", "queuename": "queue",
	"node_id": "node", "nodeid": "node", "worker": "node",
	"try": "attempt", "attempt_number": "attempt",
	"err": "error", "cause": "error", "reason": "error",
}

// checkLogKeys returns a sentence for each log attribute with a wrong name.
func (s *source) checkLogKeys() []string {
	var bad []string
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			fn, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := fn.X.(*ast.Ident); !ok || from.Name != "slog" {
				return true
			}
			key, ok := call.Args[0].(*ast.BasicLit)
			if !ok || key.Kind != token.STRING {
				return true
			}
			word, err := strconv.Unquote(key.Value)
			if err != nil {
				return true
			}
			if want, wrong := logKeys[word]; wrong {
				bad = append(bad, fmt.Sprintf("%s: log attribute %q is called %q everywhere else", s.at(call), word, want))
			}
			return true
		})
	}
	return bad
}
