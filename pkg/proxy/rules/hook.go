package rules

// Hook is a jump from a chain of the system into one of ours.
type Hook struct {
	Table, Chain string
	Match        []string // words before the jump, unquoted
	Target       string
}

// Words is the rule, word by word.
func (h Hook) Words() []string {
	return append(append([]string{}, h.Match...), "-j", h.Target)
}

// PodChainPrefix begins the names of the pod network's chains, which travel in
// the proxy's transactions.
const PodChainPrefix = "KUBE-PODS-"
