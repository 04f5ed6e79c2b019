/** Turns payloads into bytes and back. */
export interface Codec<T = unknown> {
  encode(payload: T): Uint8Array;
  decode(data: Uint8Array): T;
}

/** JSON, the default. `undefined` has no bytes. */
export const json: Codec<any> = {
  encode: (payload) => (payload === undefined ? new Uint8Array() : Buffer.from(JSON.stringify(payload))),
  decode: (data) => (data.length === 0 ? undefined : JSON.parse(Buffer.from(data).toString())),
};

/** Returns the bytes of a payload. Bytes stay as they are, whatever the codec. */
export function encode(codec: Codec<any>, payload: unknown): Uint8Array {
  return payload instanceof Uint8Array ? payload : codec.encode(payload);
}
