package generator

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/filaq/fila/wire/api"
)

// channel is a subject, or many with parameters, for the AsyncAPI document.
type channel struct {
	name     string
	address  string // below the prefix
	sends    bool   // fila sends, rather than receives
	messages []message
	replies  []message
	about    string
}

// message is a message of a channel by the names of its documents; "": anything, or nothing.
type message struct{ body, headers string }

func (m message) name() string {
	if m.body == "" {
		return strings.TrimSuffix(m.headers, ".headers")
	}
	return m.body
}

var failed = message{"error", "error.headers"}

// tails are the ends of the subjects of verbs.
var tails = map[api.Tail]string{
	api.TailNewQueue: ".{queue}", api.TailQueue: ".{queue}", api.TailMainQueue: ".{queue}", api.TailDeadLetters: ".{queue}",
	api.TailConfigKey: ".{key}", api.TailGateKey: ".{key}", api.TailJob: ".{op}.{queue}",
}

// channels returns the channels of all subjects that clients use.
func channels() []channel {
	all := []channel{
		{
			name: "enqueue", address: "enqueue.{queue}", about: "A producer publishes a message, or several as a batch. The payload of a message is opaque.",
			messages: []message{{"", "enqueue.headers"}, {"", "enqueue-batch.headers"}},
			replies:  []message{{"enqueue.reply", ""}, {"enqueue-batch.reply", ""}, failed},
		},
		{
			name: "consumer", address: "consumer.{consumer}.{queue}", about: "A consumer registers, renews its registration, changes its credit, fetches or leaves.",
			messages: []message{{"consumer.request", ""}}, replies: []message{{"consume.reply", ""}, failed},
		},
		{
			name: "consume", address: "consume.{queue}", about: "The same without fetch; the body names the consumer.",
			messages: []message{{"consume.request", ""}}, replies: []message{{"consume.reply", ""}, failed},
		},
		{
			name: "fetch", address: "fetch.{queue}", about: "A consumer fetches messages; deliveries come to the reply subject.",
			messages: []message{{"fetch.request", ""}}, replies: []message{{"", "delivery.headers"}, {"", "fetch-end.headers"}, failed},
		},
		{
			name: "deliver", address: "deliver.{consumer}.{queue}", sends: true, about: "fila delivers messages of a queue to a registered consumer. The reply subject takes the ack.",
			messages: []message{{"", "delivery.headers"}},
		},
		{
			name: "ack", address: "ack.{shard}.{token}.{queue}", about: "The reply subject of a delivery. The payload is empty, +ACK, +WPI, -NAK or +TERM, with details, or for a batch lines of these.",
			messages: []message{{"", "ack.headers"}}, replies: []message{{"ack-batch.reply", ""}, failed},
		},
		{
			name: "nack", address: "nack.{shard}.{token}.{queue}", about: "The same for failures only. The payload is the error text.",
			messages: []message{{"", "ack.headers"}}, replies: []message{{"ack-batch.reply", ""}, failed},
		},
		{
			name: "guard-check", address: "guard.check.{key}", about: "A caller that is no consumer asks before a call.",
			messages: []message{{"guard-check.request", "guard-check.headers"}}, replies: []message{{"guard-check.reply", "guard-refusal.headers"}, failed},
		},
		{
			name: "guard-done", address: "guard.done.{key}", about: "A caller reports the outcome of a call.",
			messages: []message{{"guard-done.request", ""}}, replies: []message{{"guard-done.reply", ""}, failed},
		},
		{
			name: "guard-state", address: "guard.state.{key}", about: "A caller asks for the state of a key.",
			messages: []message{{"guard-state.request", ""}}, replies: []message{{"guard-state.reply", ""}, failed},
		},
	}
	for _, v := range api.Verbs() {
		all = append(all, channel{
			name: v.String(), address: "admin." + v.String() + tails[v.Kind()], about: "An operator requests " + v.String() + ".",
			messages: []message{{v.String() + ".request", "admin.headers"}}, replies: []message{{v.String() + ".reply", ""}, failed},
		})
	}
	for _, e := range events {
		all = append(all, channel{
			name: "event." + e.typ, address: "event." + e.typ + ".{tail}", sends: true, about: "fila publishes an event. The tail is its queue or key, or _.",
			messages: []message{{"event." + e.typ, ""}},
		})
	}
	return all
}

type object = map[string]any

func ref(format string, args ...any) object { return object{"$ref": fmt.Sprintf(format, args...)} }

// parameter finds the parameters of an address.
var parameter = regexp.MustCompile(`\{(\w+)\}`)

var parameters = map[string]string{
	"queue":    "The name of a queue: 1 to 128 bytes of A-Za-z0-9_-, with dots between non-empty parts.",
	"consumer": "The name of a consumer: 1 to 64 bytes of A-Za-z0-9_-.",
	"key":      "A key, or _ if it is not legal in a subject and the body has it.",
	"op":       "The operation of a job. Without op and queue, the body has both.",
	"shard":    "The number of a shard, 0 without a cluster.",
	"token":    "The token of a delivery.",
	"tail":     "A queue or key, or _.",
}

// asyncAPI returns the AsyncAPI 3 document, from the side of fila.
func asyncAPI() object {
	addresses, operations, messages, replies := object{}, object{}, object{}, object{}
	use := func(m message) string {
		messages[m.name()] = m.describe()
		return m.name()
	}
	for _, c := range channels() {
		own, params := object{}, object{}
		for _, m := range c.messages {
			own[use(m)] = ref("#/components/messages/%s", m.name())
		}
		for _, p := range parameter.FindAllStringSubmatch(c.address, -1) {
			params[p[1]] = object{"description": parameters[p[1]]}
		}
		address := object{"address": "fila." + c.address, "description": c.about, "messages": own}
		if len(params) > 0 {
			address["parameters"] = params
		}
		addresses[c.name] = address
		operation := object{"action": "receive", "channel": ref("#/channels/%s", c.name)}
		if c.sends {
			operation["action"] = "send"
		}
		if c.replies != nil {
			var answers []object
			for _, m := range c.replies {
				replies[use(m)] = ref("#/components/messages/%s", m.name())
				answers = append(answers, ref("#/channels/replies/messages/%s", m.name()))
			}
			operation["reply"] = object{"channel": ref("#/channels/replies"), "messages": answers}
		}
		operations[c.name] = operation
	}
	addresses["replies"] = object{"address": nil, "description": "The reply subject of a request.", "messages": replies}
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "fila", "version": "1",
			"description": "The protocol of fila, a scheduling sidecar for NATS. Subjects begin with a prefix, fila by default.",
		},
		"defaultContentType": "application/json",
		"channels":           addresses, "operations": operations, "components": object{"messages": messages},
	}
}

// describe returns the message object.
func (m message) describe() object {
	file := func(name string) object {
		return object{"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": ref("./%s.json", name)}
	}
	o := object{"name": m.name()}
	if m.body != "" {
		o["payload"] = file(m.body)
	} else {
		o["contentType"] = "application/octet-stream"
	}
	if m.headers != "" {
		o["headers"] = file(m.headers)
	}
	return o
}
