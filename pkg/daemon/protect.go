package daemon

import (
	"net/http"
	"strings"
)

// Protect lets anybody read health, and everything else only clients with a
// certificate of the authority that the server's TLS configuration trusts.
func Protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isHealth(r.URL.Path) && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func isHealth(path string) bool {
	for _, p := range []string{"/healthz", "/livez", "/readyz"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}
