package netrules

// Hook is a jump from a chain of the system to one of ours.
type Hook struct {
	Table, Chain string
	Match        []string // arguments before the jump, unquoted
	Target       string
}

// Words returns the arguments of the rule.
func (h Hook) Words() []string {
	return append(append([]string{}, h.Match...), "-j", h.Target)
}

// PodChainPrefix is the prefix of the pod network's chains, which the proxy writes in
// its transactions.
const PodChainPrefix = "KUBE-PODS-"
