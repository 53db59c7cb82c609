/** An event. */
export interface LiveEvent {
  topic: string;
  /** The name it was published under; may be empty. */
  kind: string;
  /** When it was published, in milliseconds since 1970. */
  at: number;
  /** Its text; empty if it is no text. */
  data: string;
  /** Its bytes, if it is no text. */
  bytes?: Uint8Array;
  /** Whoever has taken this event goes on from here. Opaque. */
  id: string;
}

/** Why a state must be fetched: a reason of the server, or "first". */
export interface Sync {
  topic?: string;
  reason: string;
  /** The state must be read at or after this position. */
  id: string;
}

/** The server's word for a subscriber that read too slowly: the events up to `through` follow. */
export interface Gap {
  topic: string;
  after: string;
  through: string;
}

export type State =
  | "connecting"
  /** Everything up to now was taken. */
  | "live"
  /** What was missed cannot be replayed: a state is being fetched. */
  | "syncing"
  /** The server said that nothing more comes (204). */
  | "over"
  /** The server refuses this client for good. */
  | "refused"
  | "closed";

export interface Options {
  /** Where the routes are, without a slash at the end. Empty: at the root of this origin. */
  url?: string;
  /** 1 to 32 topics. */
  topics: string[];
  /** "eventsource" (default), or "fetch": sends headers, sees statuses, and notices a silent connection. */
  transport?: "eventsource" | "fetch";
  /** The position to begin from; without it the client asks for one and then calls `load`. */
  id?: string;
  /** Fetches the page's state anew. Called first, and after each `sync_required`; events wait for it. */
  load?: (sync: Sync) => void | Promise<void>;
  /** Takes one event. One after the other; if it fails, the event comes again. */
  onEvent: (event: LiveEvent) => void | Promise<void>;
  onOpen?: (opened: { topic: string; resumed: boolean; id: string }) => void;
  onGap?: (gap: Gap) => void;
  /** Before `load`: show that what is seen may be old. */
  onSyncRequired?: (sync: Sync) => void | Promise<void>;
  /** A failure of this callback, or of `onError`, is logged and changes nothing. */
  onState?: (state: State, detail?: Sync | Error) => void;
  /** What went wrong and is tried again; with `status` where an answer came that was none of ours. */
  onError?: (error: Error) => void;
  /** Sent with requests by fetch. */
  headers?: Record<string, string>;
  credentials?: RequestCredentials;
}

export interface Subscription {
  /** The position after everything taken so far. Opaque. */
  readonly id: string;
  readonly state: State;
  /** Ends it. Nothing is called afterwards. */
  close(): void;
}

export function subscribe(options: Options): Subscription;

export interface Published {
  id: string;
  position: string;
  /** The token had been seen: this is the first publish. */
  repeated: boolean;
}

/**
 * Publishes. With a token a repeat is safe after any failure; without one, only after a refusal.
 * The error of an answer has its `status`, and as `code` what the server calls it; a proxy's answer has no code.
 */
export function publish(
  url: string,
  topic: string,
  data: BodyInit,
  options?: { kind?: string; token?: string; headers?: Record<string, string>; credentials?: RequestCredentials },
): Promise<Published>;

/** A frame of `text/event-stream`. */
export interface Frame {
  data?: string;
  event: string;
  id?: string;
  retry?: number;
}

export class Parser {
  constructor(onFrame: (frame: Frame) => void);
  push(text: string): void;
}
