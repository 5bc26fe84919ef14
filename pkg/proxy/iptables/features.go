package iptables

import "podium/pkg/proxy/rules"

// Features is what this kernel and this iptables can do. Without Statistic
// connections are spread by the client's address; without Recent ClientIP
// affinity works by the client's address and knows no timeout. Without
// ReversePath a pod can send from any address.
type Features struct {
	Comment     bool
	Statistic   bool
	Recent      bool
	RandomFully bool
	SCTP        bool
	ReversePath bool // a packet can be matched by the way back to its source
}

// AllFeatures is what an ordinary kernel has.
func AllFeatures() Features {
	return Features{Comment: true, Statistic: true, Recent: true, RandomFully: true, SCTP: true, ReversePath: true}
}

func (f Features) comment(text string) string {
	if !f.Comment {
		return ""
	}
	return rules.Comment(text)
}

func (f Features) commentWords(text string) []string {
	if !f.Comment {
		return nil
	}
	return []string{"-m", "comment", "--comment", text}
}

// Missing names, for the operator, what the kernel lacks and what follows.
func (f Features) Missing() []string {
	var out []string
	if !f.Comment {
		out = append(out, "no comment match: rules carry no names")
	}
	if !f.Statistic {
		out = append(out, "no statistic match: connections are spread over endpoints by the client's address")
	}
	if !f.Recent {
		out = append(out, "no recent match: sessionAffinity ClientIP goes by the client's address, and its timeout is not kept")
	}
	if !f.SCTP {
		out = append(out, "no sctp match: SCTP ports of Services are not served")
	}
	if !f.ReversePath {
		out = append(out, "no rpfilter match in the raw table: the source addresses of pods' packets are not checked")
	}
	return out
}
