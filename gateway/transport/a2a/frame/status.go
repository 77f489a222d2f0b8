package frame

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// canonicalCodes are the names of google.rpc.Code by number, each with the HTTP
// status that stands for it (A2A 5.4, google/rpc/code.proto).
var canonicalCodes = [...]struct {
	name   string
	status int
}{
	{"OK", http.StatusOK},
	{"CANCELLED", 499},
	{"UNKNOWN", http.StatusInternalServerError},
	{"INVALID_ARGUMENT", http.StatusBadRequest},
	{"DEADLINE_EXCEEDED", http.StatusGatewayTimeout},
	{"NOT_FOUND", http.StatusNotFound},
	{"ALREADY_EXISTS", http.StatusConflict},
	{"PERMISSION_DENIED", http.StatusForbidden},
	{"RESOURCE_EXHAUSTED", http.StatusTooManyRequests},
	{"FAILED_PRECONDITION", http.StatusBadRequest},
	{"ABORTED", http.StatusConflict},
	{"OUT_OF_RANGE", http.StatusBadRequest},
	{"UNIMPLEMENTED", http.StatusNotImplemented},
	{"INTERNAL", http.StatusInternalServerError},
	{"UNAVAILABLE", http.StatusServiceUnavailable},
	{"DATA_LOSS", http.StatusInternalServerError},
	{"UNAUTHENTICATED", http.StatusUnauthorized},
}

// Of a status, as many bytes of text and as many details are read.
const (
	maxStatusText = 16 << 10
	maxDetails    = 64
)

const (
	typePrefix   = "type.googleapis.com/"
	reasonNoCall = "METHOD_NOT_FOUND"
	detailType   = "@type"
)

// failed is an error as the HTTP form has it (A2A 11.6).
type failed struct {
	Code    int               `json:"code"`
	Status  string            `json:"status,omitempty"`
	Message string            `json:"message"`
	Details []json.RawMessage `json:"details,omitempty"`
}

// frameStatus makes an error of the HTTP form the google.rpc.Status that gRPC
// has for it.
func frameStatus(body []byte) ([]byte, []canonical.Loss, error) {
	var response struct {
		Error failed `json:"error"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return nil, nil, err
	}
	out := &spb.Status{Code: int32(codeNamed(response.Error)), Message: strings.ToValidUTF8(response.Error.Message, "\uFFFD")} //nolint:gosec // small
	var losses []canonical.Loss
	for _, raw := range response.Error.Details {
		detail, err := frameDetail(raw)
		if err != nil {
			losses = append(losses, canonical.Loss{Code: canonical.LossErrorDetail, Path: "/body/details", Fate: canonical.Dropped})
			continue
		}
		out.Details = append(out.Details, detail)
	}
	framed, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	return framed, losses, err
}

// codeNamed is the code of an error: by its name; but that there is no such
// method is a code of its own over gRPC.
func codeNamed(f failed) codes.Code {
	for _, raw := range f.Details {
		var info struct{ Reason string }
		if json.Unmarshal(raw, &info) == nil && info.Reason == reasonNoCall {
			return codes.Unimplemented
		}
	}
	for code, row := range canonicalCodes {
		if row.name == f.Status && code != 0 {
			return codes.Code(code)
		}
	}
	return codes.Internal
}

// frameDetail encodes a detail of a status. Types of google.rpc keep their type; any other
// becomes an object that names its type, as the official peers write it.
func frameDetail(raw json.RawMessage) (*anypb.Any, error) {
	detail := &anypb.Any{}
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, detail) == nil && strings.HasPrefix(detail.GetTypeUrl(), typePrefix+"google.rpc.") {
		return detail, nil
	}
	object := &structpb.Struct{}
	if err := protojson.Unmarshal(raw, object); err != nil {
		return nil, err
	}
	return anypb.New(object)
}

// unframeStatus makes a google.rpc.Status an error of the HTTP form. More details
// than are read are a loss (L31).
func unframeStatus(body []byte) ([]byte, []canonical.Loss, error) {
	status := &spb.Status{}
	losses, err := decode(body, status, maxNested)
	if err != nil {
		return nil, nil, err
	}
	if len(status.GetDetails()) > maxDetails {
		losses = append(losses, canonical.Loss{Code: canonical.LossErrorDetail, Path: "/body/details", Fate: canonical.Dropped})
	}
	row := canonicalCodes[codes.Unknown]
	if code := status.GetCode(); code > 0 && int(code) < len(canonicalCodes) {
		row = canonicalCodes[code]
	}
	failure := failed{Code: row.status, Status: row.name, Message: status.GetMessage()}
	for _, detail := range status.GetDetails()[:min(len(status.GetDetails()), maxDetails)] {
		raw, err := unframeDetail(detail)
		if err != nil {
			return nil, nil, &translators.MalformedError{Path: "/error/details", Reason: "unreadable"}
		}
		failure.Details = append(failure.Details, raw)
	}
	out, err := json.Marshal(struct {
		Error failed `json:"error"`
	}{failure})
	return out, losses, err
}

func unframeDetail(detail *anypb.Any) (json.RawMessage, error) {
	if object := (&structpb.Struct{}); detail.MessageIs(object) {
		if _, err := decode(detail.GetValue(), object, maxNested); err != nil {
			return nil, err
		}
		if object.GetFields()[detailType].GetStringValue() != "" {
			return protojson.Marshal(object)
		}
		return protojson.Marshal(detail)
	}
	if known(detail) {
		return protojson.Marshal(detail)
	}
	kind := cmp.Or(detail.GetTypeUrl(), "about:blank")
	return json.Marshal(map[string]string{ // an unknown type: its bytes pass unread
		detailType: kind, "value": base64.StdEncoding.EncodeToString(detail.GetValue()),
	})
}

// known are the details that are read as what they are. The list is closed, so
// that no type that happens to be linked in is made because a peer names it.
func known(detail *anypb.Any) bool {
	return slices.ContainsFunc([]proto.Message{
		&errdetails.ErrorInfo{}, &errdetails.BadRequest{}, &errdetails.RetryInfo{}, &errdetails.DebugInfo{}, &errdetails.QuotaFailure{},
		&errdetails.PreconditionFailure{}, &errdetails.RequestInfo{}, &errdetails.ResourceInfo{}, &errdetails.Help{}, &errdetails.LocalizedMessage{},
	}, detail.MessageIs)
}

// Status is the status of an answer that has no details.
func Status(code codes.Code, message string) []byte {
	if len(message) > maxStatusText {
		message = message[:maxStatusText]
	}
	body, err := proto.Marshal(&spb.Status{Code: int32(code), Message: strings.ToValidUTF8(message, "\uFFFD")}) //nolint:gosec // small
	if err != nil {
		return nil
	}
	return body
}

// HTTPStatus is the HTTP status that stands for a code.
func HTTPStatus(code codes.Code) int {
	if int(code) < len(canonicalCodes) {
		return canonicalCodes[code].status
	}
	return http.StatusInternalServerError
}
