package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// For nf_tables, netlink returns the number of rules in a chain, and a generation
// number that shows whether anything changed. Both are much cheaper than
// iptables-save, which formats every rule.
// https://docs.kernel.org/netlink/specs/nftables.html

func nftRequest(message, flags int, family uint8) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

func nftGeneration() (uint32, error) {
	msgs, err := nftRequest(unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC).Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, err
	}
	for _, m := range msgs {
		if id := attribute(m, unix.NFTA_GEN_ID); len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
	return 0, errors.New("the kernel sent no generation")
}

// nftCounts returns the number of rules by chain of a family's table; none for a table
// that does not exist.
func nftCounts(family uint8, table string) (map[string]int, error) {
	const tries = 5 // a dump that a concurrent write interrupts is retried
	var err error
	for range tries {
		counts := map[string]int{}
		if err = nftDump(family, table, counts); err == nil {
			return counts, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return nil, fmt.Errorf("list nf_tables: %w", err)
}

// nftDump adds the chains of a table and their numbers of rules to counts.
func nftDump(family uint8, table string, counts map[string]int) error {
	chains := nftRequest(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family)
	err := chains.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if text(attribute(m, unix.NFTA_CHAIN_TABLE)) == table {
			counts[text(attribute(m, unix.NFTA_CHAIN_NAME))] = 0
		}
		return true
	})
	if err != nil || len(counts) == 0 {
		return err
	}
	inTable := nftRequest(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family)
	inTable.AddData(nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(table)))
	return inTable.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if text(attribute(m, unix.NFTA_RULE_TABLE)) == table {
			counts[text(attribute(m, unix.NFTA_RULE_CHAIN))]++
		}
		return true
	})
}

// attribute returns the value of an attribute of an nfnetlink message; nil if it is
// missing or the message is truncated.
func attribute(message []byte, kind uint16) []byte {
	const header = 4 // size of the nfnetlink header and of each attribute's header
	if len(message) < header {
		return nil
	}
	rest := message[header:]
	for len(rest) >= header {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < header || size > len(rest) {
			return nil
		}
		if binary.NativeEndian.Uint16(rest[2:])&nl.NLA_TYPE_MASK == kind {
			return rest[header:size]
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return nil
}

func text(zeroTerminated []byte) string {
	for i, b := range zeroTerminated {
		if b == 0 {
			return string(zeroTerminated[:i])
		}
	}
	return string(zeroTerminated)
}
