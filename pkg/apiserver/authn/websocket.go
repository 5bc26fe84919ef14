package authn

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"
)

// protocolPrefix is the prefix of the WebSocket subprotocol in which a browser,
// which cannot set headers, sends its token.
const protocolPrefix = "base64url.bearer.authorization.k8s.io."

// protocolToken removes the token from the subprotocols that a WebSocket
// request offers and returns it. It returns "" unless there is exactly one
// token and another subprotocol for the server to select.
func protocolToken(r *http.Request) string {
	const header = "Sec-Websocket-Protocol"
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	token, others := "", []string(nil)
	for _, line := range r.Header.Values(header) {
		for offered := range strings.SplitSeq(line, ",") {
			offered = strings.TrimSpace(offered)
			encoded, isToken := strings.CutPrefix(offered, protocolPrefix)
			switch {
			case !isToken:
				others = append(others, offered)
			case token != "":
				return "" // more than one token
			default:
				data, err := base64.RawURLEncoding.DecodeString(encoded)
				if err != nil || !utf8.Valid(data) || len(data) == 0 {
					return ""
				}
				token = string(data)
			}
		}
	}
	if token == "" || len(others) == 0 {
		return ""
	}
	r.Header.Set(header, strings.Join(others, ","))
	return token
}
