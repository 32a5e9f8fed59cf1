package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
)

// logKeys are other words for what log lines have a fixed key for. The keys are those of middleware/log.go; adapters, which
// cannot import it, write them out.
var logKeys = map[string]string{
	"id": "task_id", "taskid": "task_id", "message_id": "task_id", "msg_id": "task_id",
	"task_name": "task", "handler": "task",
	"queue_name": "queue", "queuename": "queue",
	"node_id": "node", "nodeid": "node", "worker": "node",
	"try": "attempt", "attempt_number": "attempt",
	"err": "error", "cause": "error", "reason": "error",
}

// checkLogKeys finds attributes of log lines that are called by another word than everywhere else.
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
