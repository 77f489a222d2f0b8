package a2a03

import (
	"encoding/json"
	"strings"
)

// The kinds of 0.3.
const (
	kindMessage = "message"
	kindTask    = "task"
	kindText    = "text"
	kindData    = "data"
	kindFile    = "file"
)

// keyCompat marks data that was wrapped because it is no object; keyValue is
// where it then is.
const (
	keyCompat = "data_part_compat"
	keyValue  = "value"
)

// name is a value of an enumeration: in 0.3, in 1.0, and by its number in 1.0.
type name struct{ old, newer, number string }

var roles = []name{
	{"user", "ROLE_USER", "1"},
	{"agent", "ROLE_AGENT", "2"},
}

var states = []name{
	{"unknown", "TASK_STATE_UNSPECIFIED", "0"},
	{"submitted", "TASK_STATE_SUBMITTED", "1"},
	{"working", "TASK_STATE_WORKING", "2"},
	{"completed", "TASK_STATE_COMPLETED", "3"},
	{"failed", "TASK_STATE_FAILED", "4"},
	{"canceled", "TASK_STATE_CANCELED", "5"},
	{"input-required", "TASK_STATE_INPUT_REQUIRED", "6"},
	{"rejected", "TASK_STATE_REJECTED", "7"},
	{"auth-required", "TASK_STATE_AUTH_REQUIRED", "8"},
}

// The members by which the versions differ, level by level: those of 0.3, and
// those of 1.0 that must not stand in 0.3.
var (
	messageOld = []string{"kind"}
	taskOld    = []string{"kind"}
	partOld    = []string{"kind", "file"}
	partNew    = []string{"raw", "url", "filename", "mediaType"}
	fileOld    = []string{"bytes", "uri", "name", "mimeType"}
	configOld  = []string{"blocking", "pushNotificationConfig"}
	configNew  = []string{"returnImmediately", "taskPushNotificationConfig"}
	paramsNew  = []string{"tenant"}

	partBoth   = []string{"text", "kind", "file", "raw", "url", "filename", "mediaType"}
	configBoth = []string{"blocking", "pushNotificationConfig", "returnImmediately", "taskPushNotificationConfig"}
)

// The names by which the HTTP form differs from JSON-RPC.
const (
	contentHTTP   = "content"
	bytesHTTP     = "fileWithBytes"
	uriHTTP       = "fileWithUri"
	pushHTTP      = "pushNotification"
	cancelledHTTP = "TASK_STATE_CANCELLED"
	canceledNew   = "TASK_STATE_CANCELED"
)

// The members of the HTTP form, level by level, and those of JSON-RPC that must
// not stand there.
var (
	responseHTTP = []string{kindTask, kindMessage}
	messageHTTP  = []string{contentHTTP}
	messageRPC   = []string{"kind", "parts"}
	contents     = []string{kindText, kindFile, kindData}
	kindOnly     = []string{"kind"}
	dataHTTP     = []string{kindData}
	fileHTTP     = []string{bytesHTTP, uriHTTP, "name", "mimeType"}
	fileRPC      = []string{"bytes", "uri"}
	configHTTP   = []string{"blocking", pushHTTP}
	configRPC    = []string{"pushNotificationConfig"}
)

// carriedPart are the members of 1.0 parts that texts and data of 0.3 carry in
// canon, with their names there.
var carriedPart = []struct{ member, canon string }{{"mediaType", "media"}, {"filename", "name"}}

// like finds the name in the list that a careless reader takes text for; exact
// matches count.
func like(text string, names []string) (string, bool) {
	for _, n := range names {
		if text == n || strings.EqualFold(strings.ReplaceAll(text, "_", ""), n) {
			return n, true
		}
	}
	return "", false
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }
